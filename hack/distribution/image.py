"""The name of an image, in the parts that kustomize and the chart take it in."""

import re
from dataclasses import dataclass

_NAME = re.compile(
    r"(?P<name>[^\s:@]+(?::\d+(?=/))?[^\s:@]*)"
    r"(?::(?P<tag>[\w][\w.-]{0,127}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


@dataclass(frozen=True, kw_only=True)
class Image:
    """`name:tag@digest`, of which tag and digest may be empty."""

    name: str
    tag: str = ""
    digest: str = ""


def parse(text: str) -> Image:
    """Read a name like `registry.example.com/reprieve:0.1.0`; `ValueError` if it is none."""
    found = _NAME.fullmatch(text)
    if not found:
        raise ValueError(
            f'"{text}" is not the name of an image, like registry.example.com/reprieve:0.1.0'
        )
    return Image(name=found["name"], tag=found["tag"] or "", digest=found["digest"] or "")
