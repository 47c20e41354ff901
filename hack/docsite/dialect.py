"""Rewrites GitHub's Markdown into that of MkDocs, which differs in lists and anchors.

MkDocs wants a blank line before a list, and indents what is inside a list item by four columns,
where GitHub takes the width of the item's marker.
"""

import re
from collections.abc import Iterator

_ITEM = re.compile(r"( *)([-*]|\d+\.) +(?=\S)")
_FENCE = re.compile(r" *(```+|~~~+)")
COLUMNS = 4


def anchor(heading: str, separator: str = "-") -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", separator)


def rewritten(text: str) -> str:
    """Return a page in MkDocs' Markdown."""
    return "".join(f"{line}\n" for line in _lines(text.splitlines()))


def _lines(lines: list[str]) -> Iterator[str]:
    inside: list[int] = []  # for each list item around this line, the column where its text begins
    first = ""  # the first line after the last blank one
    fence = ""
    previous = ""
    for line in lines:
        item = None if fence else _ITEM.match(line)
        column = _column(line)
        if previous.strip() and item and not (_ITEM.match(first) and column >= _column(first)):
            yield ""
            first = ""
        if line.strip() and not fence and (item or not previous.strip()):
            while inside and column < inside[-1]:
                inside.pop()
        begin = inside[-1] if inside else 0
        yield " " * (COLUMNS * len(inside)) + line[min(begin, column) :] if line.strip() else ""
        if item:
            inside.append(item.end())
        elif marker := _FENCE.match(line):
            fence = "" if fence else marker[1]
        first = (first or line) if line.strip() else ""
        previous = line


def _column(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
