"""The types of a route: a method, a path and the handler that answers."""

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

RouteHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Routes = Mapping[tuple[str, str], RouteHandler]
"""By method and path."""
