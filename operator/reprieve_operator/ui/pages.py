"""The requests below `/ui`: three files for anyone, and the document for tokens with the right.

A browser cannot send a token with the address of a page. So the files, which tell nothing about the
cluster, need none; the page asks its reader for a token, and sends it with each request for data.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from importlib.resources import files

import msgspec
from aiohttp import web

from reprieve_runtime.serving.metrics_access import MetricsAccess
from reprieve_runtime.serving.metrics_port import Handler, refuse

from .document import PageDocument

PATH = "/ui"
ROLE = "reprieve:ui-reader"
DATA_PATH = f"{PATH}/data"
_FILES = {
    PATH: ("index.html", "text/html"),
    f"{PATH}/app.js": ("app.js", "text/javascript"),
    f"{PATH}/style.css": ("style.css", "text/css"),
}
HEADERS: Mapping[str, str] = {
    # Nothing from elsewhere, nothing inline, in no frame, and no form that leads elsewhere.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def handlers(access: MetricsAccess, document: Callable[[], PageDocument]) -> Mapping[str, Handler]:
    """Return what answers each path below `/ui`."""

    async def respond_with_data(request: web.BaseRequest) -> web.StreamResponse:
        refused = await refuse(request, access)
        if refused is not None:
            refused.headers.update(HEADERS)
            return refused
        return _response(msgspec.json.encode(document()), "application/json")

    found: dict[str, Handler] = {DATA_PATH: respond_with_data}
    for path, (name, content_type) in _FILES.items():
        found[path] = _file_handler(name, content_type)
    return found


def _file_handler(name: str, content_type: str) -> Handler:
    body = (files(__package__) / "static" / name).read_bytes()

    async def respond(_: web.BaseRequest) -> web.StreamResponse:
        return _response(body, content_type)

    return respond


def _response(body: bytes, content_type: str) -> web.Response:
    return web.Response(
        status=HTTPStatus.OK,
        body=body,
        content_type=content_type,
        charset="utf-8",
        headers=HEADERS,
    )
