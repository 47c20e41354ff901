"""Reads YAML as Kubernetes does: one document as plain values, and the line of each key.

Scalars mean what they mean to sigs.k8s.io/yaml (go-yaml 2: `y` and `on` are booleans, `010` is 8),
because kubectl converts them so for the API server. Aliases and merge keys are followed. Refuses a
document that becomes too large through aliases, or too deep, and one with a repeated key: parsers
disagree about which of the two values counts.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import yaml

from .field_paths import PathStep
from .sources import Unreadable

MAX_DEPTH = 150
"""Levels. The API server refuses more than 10,000; composing 100,000 crashes the process."""
_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
MAX_VALUES = 1_000_000
"""Values that a small document may have once its aliases are expanded."""

_PLAIN, _TEXT = "plain", "text"
_STR_TAG = "tag:yaml.org,2002:str"
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")
_FALSE = ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
_BOOLEANS = dict.fromkeys(_TRUE, True) | dict.fromkeys(_FALSE, False)
_NUMBER_STARTS = frozenset("+-.0123456789")
_NOT_STRINGS = _NULLS | _BOOLEANS.keys() | {"<<"}
_INTEGER = re.compile(r"[+-]?(?:0x[0-9a-fA-F]+|0b[01]+|0o?[0-7]+|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][+-]?[0-9]+)?")
_MAX_DIGITS = 64
_DOCUMENT_START = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_BLANK = re.compile(
    r"(?:\s|#[^\n]*(?:\n|\Z)|^%[^\n]*(?:\n|\Z)|^\.\.\.[ \t]*(?:\n|\Z)|^---\s)*", re.MULTILINE
)


def split(text: str) -> Iterator[tuple[int, str]]:
    """Yield each document that is not blank, with its first line.

    Documents are parsed one by one, so that a broken one does not hide the others.
    """
    starts = [0, *(match.start() for match in _DOCUMENT_START.finditer(text)), len(text)]
    line = 1
    for start, end in pairwise(starts):
        part = text[start:end]
        if not _BLANK.fullmatch(part):
            yield line, part
        line += part.count("\n")


def read(text: str) -> Any:
    """Return one document as plain values; raises `Unreadable` with the line, counted from 0."""
    # A value takes two characters or more: a document without aliases always fits.
    return _ValueBuilder(max(MAX_VALUES, len(text))).build(_tree(text).root)


def compose(text: str) -> "yaml.Node":
    """Return the document's tree of nodes."""
    try:
        return _Composer(text).get_single_node() or yaml.ScalarNode(_PLAIN, "")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = error.problem or error.context or "not YAML"
        raise Unreadable(_HINTS.get(reason, reason), mark.line if mark else 0) from None
    except yaml.reader.ReaderError as error:
        raise Unreadable(
            "a control character", text.encode()[: error.position].count(b"\n")
        ) from None


def line_of(text: str, steps: Sequence[PathStep]) -> int:
    """Return the line of a key, or of the last key on its path that exists; counted from 0."""
    tree = _tree(text)
    node = tree.root
    line = node.start_mark.line
    for step in steps:
        found = tree.child(node, step)
        if found is None:
            break
        line, node = found
    return int(line)


def scalar_at(text: str, steps: Sequence[PathStep]) -> str | None:
    """Return the scalar without quotes at a path, as it is written; `None` if there is none."""
    tree = _tree(text)
    node = tree.root
    for step in steps:
        found = tree.child(node, step)
        if found is None:
            return None
        _, node = found
    is_plain = isinstance(node, yaml.ScalarNode) and node.tag == _PLAIN
    return str(node.value) if is_plain else None


@lru_cache(maxsize=1)
def _tree(text: str) -> "_Tree":
    """Return the document's tree; the last one is cached.

    Lines are looked up in the order of the documents.
    """
    return _Tree(compose(text))


_Child = tuple[int, "yaml.Node"]
"""A value, and the line of its key."""


class _Tree:
    """The nodes of a document.

    The keys of a mapping are read once, when the first of them is looked up. Without this, an
    object with thousands of wrong labels would take minutes.
    """

    def __init__(self, root: "yaml.Node") -> None:
        self.root = root
        self._children: dict[yaml.Node, dict[str, _Child]] = {}

    def child(self, node: "yaml.Node", step: PathStep) -> _Child | None:
        """Return the value at a key or an index, `None` if there is none."""
        if isinstance(node, yaml.MappingNode):
            return self._children_of(node).get(str(step))
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            return node.value[step].start_mark.line, node.value[step]
        return None

    def _children_of(self, node: "yaml.MappingNode") -> dict[str, _Child]:
        if node not in self._children:
            self._children[node] = self._read_children(node)
        return self._children[node]

    def _read_children(self, node: "yaml.MappingNode") -> dict[str, _Child]:
        found: dict[str, _Child] = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                found.setdefault(key.value, (key.start_mark.line, value))
        for part in _merge_nodes(node):
            if isinstance(part, yaml.MappingNode):
                for name, child in self._children_of(part).items():
                    found.setdefault(name, child)
        return found


_HINTS = {
    "found character that cannot start any token": (
        "a tab or another character that cannot start a value"
    ),
    "second occurrence": "an anchor is defined twice in one document",
    # The C library's own limit on brackets, from PyYAML 6.0.4; it is larger than ours.
    "exceeded maximum nesting depth": _TOO_DEEP,
}


class _Compose:
    """Settings for both of PyYAML's composers: do not resolve scalars, and limit the depth."""

    depth = 0

    def resolve(self, kind: object, value: object, implicit: Any) -> str:  # noqa: ARG002 - PyYAML's signature
        """Return only whether a scalar is plain: it is resolved as Go does, not as PyYAML does."""
        return _PLAIN if implicit is True or (implicit and implicit[0]) else _TEXT

    def descend_resolver(self, parent: object, index: object) -> None:  # noqa: ARG002 - PyYAML's signature
        """Enter a level."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable(_TOO_DEEP)

    def ascend_resolver(self) -> None:
        """Leave a level."""
        self.depth -= 1


if yaml.__with_libyaml__:
    from yaml._yaml import CParser

    class _Composer(_Compose, CParser):
        """The composer of the C library."""
else:
    from yaml.composer import Composer
    from yaml.parser import Parser
    from yaml.reader import Reader
    from yaml.scanner import Scanner

    class _Composer(_Compose, Reader, Scanner, Parser, Composer):  # type: ignore[no-redef]
        """The composer in Python, thirty times slower, for machines without the C library."""

        def __init__(self, text: str) -> None:
            Reader.__init__(self, text)
            Scanner.__init__(self)
            Parser.__init__(self)
            Composer.__init__(self)


class _ValueBuilder:
    """Builds the values of one document. A node is built again for each alias, and counted."""

    def __init__(self, max_entries: int) -> None:
        self._values_left = max_entries

    def build(self, node: "yaml.Node", depth: int = 0) -> Any:
        """Return the node's value."""
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        self._values_left -= len(node.value)
        if self._values_left < 0:
            raise Unreadable("its aliases would fill all memory", node.start_mark.line)
        if depth > MAX_DEPTH:
            raise Unreadable(
                "its aliases nest too deeply, or lead to themselves", node.start_mark.line
            )
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, depth + 1)
        return [self.build(item, depth + 1) for item in node.value]

    def _mapping(self, node: "yaml.Node", depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: list[Any] = []
        for key_node, value_node in node.value:
            value = self.build(value_node, depth)
            key = key_node.value
            if (
                not isinstance(key, str)
                or key in _NOT_STRINGS
                or key[0] in _NUMBER_STARTS
                or key_node.tag != _PLAIN
            ):
                if _is_merge(key_node):
                    merged.append(_merged(value, value_node.start_mark.line))
                    continue
                key = _key(key_node)
            if key in found:
                raise Unreadable(
                    f'the key "{key}" appears twice in one mapping', key_node.start_mark.line
                )
            found[key] = value
        for part in reversed(merged):
            found = part | found
        return found


def _merged(value: Any, line: int) -> dict[str, Any]:
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, dict) for part in parts):
        raise Unreadable("a merge key whose value is not a mapping", line)
    # The first of several takes precedence.
    return {key: item for part in reversed(parts) for key, item in part.items()}


def _is_merge(node: "yaml.Node") -> bool:
    return node.value == "<<" and node.tag == _PLAIN


def _key(node: "yaml.Node") -> str:
    value = _scalar(node) if isinstance(node, yaml.ScalarNode) else None
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        raise Unreadable(
            "a key that is not a string (unquoted braces of a template?)", node.start_mark.line
        )
    return str(value)


def _scalar(node: "yaml.Node") -> Any:
    text: str = node.value
    if node.tag != _PLAIN and (
        node.tag in (_TEXT, _STR_TAG) or not node.tag.startswith("tag:yaml.org,2002:")
    ):
        return text
    if text not in _NOT_STRINGS:
        return _number(text) if text[0] in _NUMBER_STARTS and len(text) <= _MAX_DIGITS else text
    return _BOOLEANS.get(text, text if text == "<<" else None)


def _number(text: str) -> int | float | str:
    digits = text.replace("_", "")
    if _INTEGER.fullmatch(digits):
        sign, body = (digits[0], digits[1:]) if digits[0] in "+-" else ("", digits)
        # Go reads a leading zero as octal, which Python refuses.
        octal = body[0] == "0" and body.isdigit()
        return int(sign + body, 8 if octal and len(body) > 1 else 0)
    return float(digits) if _FLOAT.fullmatch(digits) else text


def _merge_nodes(node: "yaml.Node") -> Iterator["yaml.Node"]:
    for key_node, value_node in node.value:
        if _is_merge(key_node):
            yield from (
                value_node.value if isinstance(value_node, yaml.SequenceNode) else (value_node,)
            )
