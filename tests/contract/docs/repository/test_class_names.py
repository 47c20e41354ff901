"""A class name means one thing: two classes of the programs never share one."""

import ast
from collections import defaultdict
from pathlib import Path

from reprieve_testing import manifests

NOT_PROGRAMS = {"client", "tests"}
"""The client library is installed into workloads, and imports none of the programs' code."""


def test_a_class_name_is_used_once() -> None:
    places = defaultdict(list)
    for path in manifests.ROOT.glob("*/reprieve_*/**/*.py"):
        if path.relative_to(manifests.ROOT).parts[0] not in NOT_PROGRAMS:
            for name in class_names(path):
                places[name].append(str(path.relative_to(manifests.ROOT)))
    assert len(places) > 500
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def class_names(path: Path) -> list[str]:
    """Return the classes at the top level of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
