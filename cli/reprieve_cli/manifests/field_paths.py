"""From the path of a field, as a violation names it, to the line where it stands."""

import re

PathStep = str | int
_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")
_PATH = re.compile(r"[a-zA-Z]+(?:\.[a-zA-Z]+|\[[^\]\s]+\])*(?=: )")


def parse(path: str) -> tuple[PathStep, ...]:
    """Return the steps of `spec.template.metadata.labels[a.b/c]`: names, keys and indices."""
    return tuple(_step(name, key) for name, key in _STEP.findall(path))


def path_in(text: str) -> str:
    """Return the path that a warning begins with, empty where it begins with none."""
    match = _PATH.match(text)
    return match[0] if match else ""


def _step(name: str, key: str) -> PathStep:
    return name or (int(key) if key.isascii() and key.isdigit() else key)
