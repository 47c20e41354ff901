"""Draws bars as SVG. No I/O.

The page is checked in and compared with what this module draws, so a drawing must be the same on
every machine. It follows the colour scheme of the reader, and loads nothing.
"""

from __future__ import annotations

import math
from html import escape

from .results import Plot

_WIDTH, _LABEL_WIDTH, _VALUE_WIDTH = 720, 285, 65
_ROW, _BAR, _HEAD, _FOOT = 28, 18, 40, 8
_OWN = ("Reprieve", "redesign")
"""The bars whose names say so have a colour of their own; the simulator calls ours `redesign`."""
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#24292f}.title{font-weight:600;font-size:14px}"
    ".own{fill:#3f51b5}.other{fill:#9aa4b2}"
    "@media (prefers-color-scheme:dark){text{fill:#d0d7de}.own{fill:#8c9eff}.other{fill:#6e7681}}"
)


def draw(plot: Plot) -> str:
    """Return the drawing: a bar for each name, from zero."""
    height = _HEAD + _ROW * len(plot.bars) + _FOOT
    longest = max((value for value in plot.bars.values() if math.isfinite(value)), default=0.0)
    title = escape(plot.title)
    rows = [
        _row(number, name, value, longest) for number, (name, value) in enumerate(plot.bars.items())
    ]
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{title}</title>",
            f"<style>{_STYLE}</style>",
            f'<text class="title" x="0" y="20">{title}</text>',
            *rows,
            "</svg>\n",
        ]
    )


def _row(number: int, name: str, value: float, longest: float) -> str:
    top = _HEAD + _ROW * number
    room = _WIDTH - _LABEL_WIDTH - _VALUE_WIDTH
    width = max(1, round(room * value / longest)) if longest and value > 0 else 1
    middle = top + _BAR - 4
    kind = "own" if any(own in name for own in _OWN) else "other"
    return (
        f'<text x="{_LABEL_WIDTH - 10}" y="{middle}" text-anchor="end">{escape(name)}</text>'
        f'<rect class="{kind}" x="{_LABEL_WIDTH}" y="{top}" width="{width}" height="{_BAR}"/>'
        f'<text x="{_LABEL_WIDTH + width + 8}" y="{middle}">{_shown(value)}</text>'
    )


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
