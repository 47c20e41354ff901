"""No program has aiohttp parse a `Content-Type` that a peer sent.

aiohttp uses the library for mail: 8 KB of semicolons take a second, in which the event loop stands
still, and other values raise errors.
"""

import ast
from collections.abc import Iterator

import pytest

from reprieve_testing import manifests

NOT_PROGRAMS = {"hack", "tests"}
PROPERTIES = {"charset", "content_disposition", "content_type"}
METHODS = {"json", "multipart", "post", "text"}
"""Of a request or response, where they are awaited; a `post` with arguments is one of a client."""


def parsing(tree: ast.AST) -> Iterator[str]:
    """Yield the attributes that parse a header of a peer."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in PROPERTIES:
            yield node.attr
        if (
            isinstance(node, ast.Await)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
            and node.value.func.attr in METHODS
            and not (node.value.func.attr == "post" and node.value.args)
        ):
            yield node.value.func.attr


def test_no_program_parses_the_content_type_of_a_peer() -> None:
    found = {
        str(path.relative_to(manifests.ROOT)): list(parsing(ast.parse(path.read_text("utf-8"))))
        for path in manifests.ROOT.glob("*/reprieve*/**/*.py")
        if path.relative_to(manifests.ROOT).parts[0] not in NOT_PROGRAMS
    }
    assert len(found) > 400
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "text", ["request.content_type == JSON", "await request.json()", "await reply.text()"]
)
def test_what_parses_it_is_found(text: str) -> None:
    assert list(parsing(ast.parse(text, mode="eval")))
