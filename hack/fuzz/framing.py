"""How a body is sent: whole, chunked, in pieces, several at once, or with a false header."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from random import Random

from . import oracle
from .bodies import Body
from .oracle import Expected, Oracle

JSON = "Content-Type: application/json"
_STUCK = 65_536  # bytes written without a pause


@dataclass(frozen=True)
class Exchange:
    """What to write to one connection, in pieces, and what must come back."""

    description: str
    pieces: tuple[bytes, ...]
    expected: tuple[Expected, ...]
    bodies: tuple[bytes, ...] = field(default=(), repr=False)
    """The reviews whose answers' uids are checked, one for each answer; empty if they cannot be."""
    keeps_connection: bool = True
    pause_seconds: float = 0.0
    """Seconds between the pieces."""


Frame = Callable[[Random, str, list[Body], Oracle], Awaitable[Exchange]]


async def make(rng: Random, path: str, bodies: list[Body], oracle: Oracle) -> Exchange:
    """Return one body, or several at once, framed as the seed chooses."""
    frame = rng.choices(tuple(_FRAMES), tuple(_FRAMES.values()))[0]
    # A large body is slow enough without a false header.
    is_large = any(len(body.content) > _STUCK * 16 for body in bodies)
    exchange = await (_plain if is_large and frame is not _chunked else frame)(
        rng, path, bodies, oracle
    )
    return _allowing_timeout(exchange) if is_large or exchange.pause_seconds else exchange


def head(path: str, *lines: str, method: str = "POST", version: str = "HTTP/1.1") -> bytes:
    """Return a request's head."""
    return "\r\n".join((f"{method} {path} {version}", "Host: reprieve", *lines, "", "")).encode(
        "utf-8", "replace"
    )


def _whole(path: str, content: bytes) -> bytes:
    return head(path, JSON, f"Content-Length: {len(content)}") + content


async def _plain(_: Random, path: str, bodies: list[Body], oracle: Oracle) -> Exchange:
    body = bodies[0]
    expected = await oracle.expect(path, body.content)
    return Exchange(
        body.description,
        (_whole(path, body.content),),
        (expected,),
        (body.content,),
        keeps(expected),
    )


async def _pipelined(_: Random, path: str, bodies: list[Body], oracle: Oracle) -> Exchange:
    expected = tuple([await oracle.expect(path, body.content) for body in bodies])
    written = b"".join(_whole(path, body.content) for body in bodies)
    return Exchange(
        "pipelined: " + _descriptions(bodies),
        (written,),
        expected,
        tuple(body.content for body in bodies),
    )


async def _in_pieces(rng: Random, path: str, bodies: list[Body], oracle: Oracle) -> Exchange:
    body, expected = bodies[0], await oracle.expect(path, bodies[0].content)
    pieces = tuple(_split(rng, _whole(path, body.content)))
    return Exchange(
        "in pieces: " + body.description, pieces, (expected,), (body.content,), pause_seconds=0.001
    )


async def _chunked(rng: Random, path: str, bodies: list[Body], oracle: Oracle) -> Exchange:
    body, expected = bodies[0], await oracle.expect(path, bodies[0].content)
    chunks = b"".join(
        b"%x\r\n%b\r\n" % (len(part), part) for part in _split(rng, body.content) if part
    )
    written = head(path, JSON, "Transfer-Encoding: chunked") + chunks + b"0\r\n\r\n"
    return Exchange(
        "chunked: " + body.description, (written,), (expected,), (body.content,), keeps(expected)
    )


async def _over_http_1_0(_: Random, path: str, bodies: list[Body], oracle: Oracle) -> Exchange:
    body, expected = bodies[0], await oracle.expect(path, bodies[0].content)
    written = (
        head(path, JSON, f"Content-Length: {len(body.content)}", version="HTTP/1.0") + body.content
    )
    return Exchange(
        "HTTP/1.0: " + body.description,
        (written,),
        (expected,),
        (body.content,),
        keeps_connection=False,
    )


async def _of_another_type(rng: Random, path: str, bodies: list[Body], _: Oracle) -> Exchange:
    named = rng.choice(
        (
            "text/plain",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
            "",
            "x" * 1000,
            "/",
        )
    )
    body = bodies[0].content
    written = head(path, f"Content-Type: {named}", f"Content-Length: {len(body)}") + body
    return Exchange(f"Content-Type {named[:40]}", (written,), (oracle.one_of(415),))


async def _encoded(rng: Random, path: str, bodies: list[Body], oracle: Oracle) -> Exchange:
    """Declare the body as compressed, whether it is or not: the server never decompresses it."""
    body, encoding = bodies[0], rng.choice(("gzip", "deflate", "br", "zstd", "x"))
    expected = await oracle.expect(path, body.content)
    lines = (JSON, f"Content-Encoding: {encoding}", f"Content-Length: {len(body.content)}")
    return Exchange(
        f"as {encoding}: {body.description}",
        (head(path, *lines) + body.content,),
        (expected,),
        (body.content,),
    )


async def _with_a_charset(_: Random, path: str, bodies: list[Body], oracle: Oracle) -> Exchange:
    body, expected = bodies[0], await oracle.expect(path, bodies[0].content)
    written = (
        head(path, f"{JSON}; charset=latin-1", f"Content-Length: {len(body.content)}")
        + body.content
    )
    return Exchange("with a charset: " + body.description, (written,), (expected,), (body.content,))


async def _elsewhere(rng: Random, _: str, bodies: list[Body], __: Oracle) -> Exchange:
    method = rng.choice(("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "PURGE"))
    path = rng.choice(
        (
            "/",
            "/validate/",
            "/validate/../mutate",
            "/" + "x" * 2000,
            "/%00",
            "/healthz/x",
            "//validate",
        )
    )
    written = (
        head(path, JSON, f"Content-Length: {len(bodies[0].content)}", method=method)
        + bodies[0].content
    )
    return Exchange(
        f"{method} {path[:30]}", (written,), (oracle.one_of(400, 404, 405),), keeps_connection=False
    )


async def _of_another_length(
    rng: Random, path: str, bodies: list[Body], oracle: Oracle
) -> Exchange:
    """Declare a shorter length: the rest is not a request."""
    content = bodies[0].content
    length = rng.randrange(len(content)) if content else 0
    expected = await oracle.expect(path, content[:length])
    written = head(path, JSON, f"Content-Length: {length}") + content
    return Exchange(
        f"{length} of {len(content)} bytes", (written,), (expected,), (), keeps_connection=False
    )


async def _with_a_bad_head(rng: Random, path: str, bodies: list[Body], _: Oracle) -> Exchange:
    content = bodies[0].content
    bad = rng.choice(_BAD_HEADS)
    written = head(path, JSON, *bad) + content
    return Exchange(
        f"head with {str(bad)[:60]}", (written,), (oracle.one_of(400, 413),), keeps_connection=False
    )


_BAD_HEADS: tuple[tuple[str, ...], ...] = (
    ("Content-Length: -1",),
    ("Content-Length: 99999999999999999999999",),
    ("Content-Length: ten",),
    ("Content-Length: 10", "Content-Length: 20"),
    ("Content-Length: 10", "Transfer-Encoding: chunked"),
    ("Transfer-Encoding: chunked, gzip, sandwich", "Content-Length: 5"),
    ("X: " + "x" * 70_000,),
    ("no colon at all",),
    (" : nothing",),
    ("X\x00Y: 1",),
    ("X: 1\x002",),
)

_FRAMES: dict[Frame, float] = {
    _plain: 70.0,
    _pipelined: 6.0,
    _in_pieces: 4.0,
    _chunked: 8.0,
    _over_http_1_0: 1.0,
    _of_another_type: 2.0,
    _encoded: 2.0,
    _with_a_charset: 2.0,
    _elsewhere: 2.0,
    _of_another_length: 1.5,
    _with_a_bad_head: 1.5,
}


def keeps(expected: Expected) -> bool:
    """Return whether a connection stays open after an answer: not if the body is incomplete."""
    return oracle.TOO_LARGE not in expected.statuses


def _allowing_timeout(exchange: Exchange) -> Exchange:
    """Also accept a timeout: on a very busy machine, this program is a slow client."""
    expected = tuple(
        replace(each, statuses=each.statuses | {oracle.LATE}) for each in exchange.expected
    )
    return replace(exchange, expected=expected, keeps_connection=False)


def _split(rng: Random, content: bytes) -> list[bytes]:
    cuts = sorted(rng.randrange(len(content) + 1) for _ in range(rng.choice((1, 2, 5, 20))))
    return [
        content[start:end] for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True)
    ]


def _descriptions(bodies: list[Body]) -> str:
    return " | ".join(body.description for body in bodies)
