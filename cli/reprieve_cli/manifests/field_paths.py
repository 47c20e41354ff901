"""Parses the path of a field, as a violation names it."""

import re

PathStep = str | int
_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")
_PATH = re.compile(r"[a-zA-Z]+(?:\.[a-zA-Z]+|\[[^\]\s]+\])*(?=: )")


def parse(path: str) -> tuple[PathStep, ...]:
    """Return the steps of `spec.template.metadata.labels[a.b/c]`: names, keys and indices."""
    return tuple(_step(name, key) for name, key in _STEP.findall(path))


def path_in(text: str) -> str:
    """Return the path at the beginning of a warning; empty if there is none."""
    match = _PATH.match(text)
    return match[0] if match else ""


def _step(name: str, key: str) -> PathStep:
    return name or (int(key) if key.isascii() and key.isdigit() else key)
