"""Renders the chart without Helm: as much of its template language as our templates use.

`tests/integration/hack/test_chart.py` compares the result with that of Helm itself.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from distribution.templates import CHART
from reprieve_testing import manifests

NAMESPACE = "reprieve-system"

_ACTION = re.compile(r"(?:\s*\{\{-|\{\{)(.*?)(?:-\}\}\s*|\}\})", re.DOTALL)
_TOKEN = re.compile(r'"[^"]*"|[()|]|[^\s()|]+')


class FailError(Exception):
    """The chart refuses the values or the namespace (`fail`)."""


def values() -> dict[str, Any]:
    """Return the chart's default values."""
    (found,) = manifests.read(CHART / "values.yaml")
    return found


def chart() -> dict[str, Any]:
    """Return the chart's own description."""
    (found,) = manifests.read(CHART / "Chart.yaml")
    return found


def render(given: dict[str, Any] | None = None, namespace: str = NAMESPACE) -> list[Any]:
    """Return the objects that the chart installs with these values over the defaults."""
    root = {
        "Values": _merged(values(), given or {}),
        "Release": {"Namespace": namespace},
        "Chart": {"AppVersion": chart()["appVersion"]},
    }
    renderer = _Renderer(root)
    renderer.text(_read("_helpers.tpl"))
    files = sorted(path.name for path in (CHART / "templates").glob("*.yaml"))
    rendered = [renderer.text(_read(name)) for name in files]
    return [found for text in rendered for found in manifests.parse(text)]


def _read(name: str) -> str:
    return (CHART / "templates" / name).read_text(encoding="utf-8")


def _merged(base: Any, given: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(given, dict):
        return given
    return base | {key: _merged(base.get(key), value) for key, value in given.items()}


@dataclass(frozen=True)
class _Block:
    """What is between `if`, `with` or `define` and its `end`."""

    word: str
    expression: str
    then: list["_Node"]
    otherwise: list["_Node"]


_Node: TypeAlias = "str | _Block"
"""A text, an action (which begins with two braces), or a block."""


def _pieces(template: str) -> Iterator[str]:
    """Yield the texts and actions of a template, without the white space that actions trim."""
    end = 0
    for found in _ACTION.finditer(template):
        yield template[end : found.start()]
        yield "{{" + found[1].strip()
        end = found.end()
    yield template[end:]


def _parse(pieces: Iterator[str]) -> tuple[list[_Node], str]:
    """Read up to the action that ends the block; return the nodes and that action."""
    nodes: list[_Node] = []
    for piece in pieces:
        word, _, rest = piece.removeprefix("{{").partition(" ")
        if not piece.startswith("{{"):
            nodes.append(piece)
        elif word in ("if", "with", "define"):
            then, end = _parse(pieces)
            otherwise = _parse(pieces)[0] if end == "else" else []
            nodes.append(_Block(word, rest, then, otherwise))
        elif word in ("end", "else"):
            return nodes, word
        elif not word.startswith("/*"):
            nodes.append(piece)
    return nodes, ""


@dataclass(frozen=True)
class _Renderer:
    root: dict[str, Any]
    defined: dict[str, list[_Node]] = field(default_factory=dict)

    def text(self, template: str) -> str:
        return self._nodes(_parse(_pieces(template))[0], self.root)

    def _nodes(self, nodes: list[_Node], dot: Any) -> str:
        return "".join(self._node(node, dot) for node in nodes)

    def _node(self, node: _Node, dot: Any) -> str:
        if isinstance(node, str):
            is_action = node.startswith("{{")
            return _shown(self._value(node.removeprefix("{{"), dot)) if is_action else node
        if node.word == "define":
            self.defined[node.expression.strip('"')] = node.then
            return ""
        value = self._value(node.expression, dot)
        if not value:
            return self._nodes(node.otherwise, dot)
        return self._nodes(node.then, value if node.word == "with" else dot)

    def _value(self, expression: str, dot: Any) -> Any:
        return self._pipeline(_TOKEN.findall(expression), dot)

    def _pipeline(self, tokens: list[str], dot: Any) -> Any:
        """Evaluate tokens up to the end or to a closing parenthesis; take them off the list."""
        piped: list[Any] = []
        while True:
            words: list[Any] = []
            name = ""
            while tokens and tokens[0] not in ("|", ")"):
                token = tokens.pop(0)
                if token == "(":
                    words.append(self._pipeline(tokens, dot))
                elif not words and not name and re.fullmatch(r"[a-zA-Z]+", token):
                    name = token
                else:
                    words.append(self._operand(token, dot))
            piped = [self._call(name, [*words, *piped]) if name else words[0]]
            if not tokens or tokens.pop(0) == ")":
                return piped[0]

    def _operand(self, token: str, dot: Any) -> Any:
        if token.startswith('"'):
            return token.strip('"')
        if token.isdecimal():
            return int(token)
        start, path = (self.root, token[1:]) if token.startswith("$") else (dot, token)
        for key in filter(None, path.split(".")):
            start = start.get(key)
        return start

    def _call(self, name: str, arguments: list[Any]) -> Any:
        if name == "include":
            template, dot = arguments
            return self._nodes(self.defined[template], dot)
        return _FUNCTIONS[name](*arguments)


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fail(message: str) -> None:
    raise FailError(message)


def _to_yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=True, width=10**6).removesuffix("...\n").rstrip()


def _nindent(spaces: int, text: str) -> str:
    return "".join(f"\n{' ' * spaces}{line}" for line in text.splitlines())


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "and": lambda *values: next((value for value in values if not value), values[-1]),
    "concat": lambda *lists: [item for each in lists for item in each],
    "default": lambda otherwise, value: value or otherwise,
    "dict": lambda *pairs: dict(zip(pairs[::2], pairs[1::2], strict=True)),
    "eq": lambda left, right: left == right,
    "fail": _fail,
    "get": lambda entries, key: entries.get(key, ""),
    "list": lambda *items: list(items),
    "ne": lambda left, right: left != right,
    "nindent": _nindent,
    "not": lambda value: not value,
    "regexReplaceAll": lambda pattern, text, by: re.sub(pattern, by, text),
    "quote": lambda value: f'"{value}"',
    "ternary": lambda yes, no, holds: yes if holds else no,
    "toYaml": _to_yaml,
    "trim": str.strip,
}
