"""The README is short, and what it shows works: its workload is admitted by the rules.

`tests/cluster/docs/test_readme.py` runs its commands; `test_commands.py` checks that each exists.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from reprieve_testing import manifests
from reprieve_testing.check_command import run

README = (manifests.ROOT / "README.md").read_text(encoding="utf-8")
MOST_LINES, MOST_WORDS = 120, 1100
"""A reader sees the whole of it in five minutes. All else has a page in docs/."""
FIRST_SCREEN = 35
"""Lines that a reader sees without scrolling."""


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES
    assert len(README.split()) <= MOST_WORDS


def test_its_first_screen_says_what_drives_what() -> None:
    rows = [line.split(" | ")[:2] for line in README.splitlines()[:FIRST_SCREEN]]
    assert [row for row in rows if row[0].startswith("| **")] == [
        ["| **priority**", "which pods may preempt"],
        ["| **class and toleration**", "which pods may be victims"],
        ["| **loss**", "which of these pods are chosen"],
    ]


def test_the_readme_shows_one_transcript() -> None:
    assert len(re.findall(r"^```console$", README, re.MULTILINE)) == 1


def test_the_workload_that_the_readme_shows_breaks_no_rule(tmp_path: Path) -> None:
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    container = {"name": "main", "image": "none", "ports": [{"containerPort": 8080}]}
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {"containers": [container]},
        **yaml.safe_load(shown),
    }
    pod["metadata"]["name"] = "shown"
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(pod))
    checked = run(file, "--strict")
    assert (checked.status, checked.lines) == (0, [])
