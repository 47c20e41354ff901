"""The manifests as written, for tests that compare them with the code: no kubectl, no cluster."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
BASE = MANIFESTS / "base"
EXAMPLES = MANIFESTS / "examples"

Object = dict[str, Any]

_KEY = re.compile(
    r"[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:reprieve\.dev|koordinator\.sh|x-k8s\.io|sigs\.k8s\.io|volcano\.sh)/[a-z-]+"
    r"|(?<![a-z0-9.-])(?:reprieve\.dev|pod-group)/[a-z-]+"
    r"|scheduling\.k8s\.io/group-name|batch\.kubernetes\.io/job-name|pod-group\.scheduling\.sigs\.k8s\.io(?!/)"
)

_LEFT_OUT = re.compile(r"(?:!\(key in \[(?=[^]]*\]\))|\.all\(key, key in \[)([^]]*)\]")

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C library's, ten times as fast, where PyYAML was built with it."""


def parse(text: str) -> list[Object]:
    """Return the objects of a text."""
    return [document for document in yaml.load_all(text, _LOADER) if document is not None]


def read(path: Path) -> list[Object]:
    """Return the objects of one file."""
    return parse(path.read_text())


@cache
def base() -> list[Object]:
    """Return every object that the base's kustomization lists."""
    (kustomization,) = read(BASE / "kustomization.yaml")
    return [found for name in kustomization["resources"] for found in read(BASE / name)]


def of_kind(kind: str) -> list[Object]:
    """Return the base's objects of one kind."""
    return [found for found in base() if found["kind"] == kind]


def named(kind: str, name: str) -> Object:
    """Return one object of the base."""
    (found,) = [found for found in of_kind(kind) if found["metadata"]["name"] == name]
    return found


def read_keys_in(expression: str) -> set[str]:
    """Return the keys for which a condition calls a webhook, without those that it leaves out."""
    return set(keys_in(_LEFT_OUT.sub("", expression)))


def keys_left_out(expression: str) -> list[set[str]]:
    """Return the keys of each list `!(key in […])` or `all(key, key in […]`: those with our prefix
    that are no mistake.
    """
    return [set(keys_in(listed)) for listed in _LEFT_OUT.findall(expression)]


def keys_in(value: object) -> Iterator[str]:
    """Yield each label, annotation and finalizer, ours and upstream's, in a text or in a value's
    texts.
    """
    if isinstance(value, str):
        yield from _KEY.findall(value)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from keys_in(key)
            yield from keys_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from keys_in(part)
