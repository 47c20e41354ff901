"""The version is written in places that `make version` changes, and in no other."""

import re

from release import version
from reprieve_testing import manifests

CURRENT = version.current(manifests.ROOT)
NEXT = "987.65.4"
"""A version that stands nowhere."""
FILES = {
    str(file.relative_to(manifests.ROOT)): file.read_text(encoding="utf-8")
    for file in version.files(manifests.ROOT)
}


def test_no_place_says_the_old_version_after_make_version() -> None:
    whole = re.compile(rf"(?<![\w.-]){re.escape(CURRENT)}(?![\w.-])")
    left = [
        name for name, text in FILES.items() if whole.search(version.rewritten(text, CURRENT, NEXT))
    ]
    assert left == [], "release/version.py: how do these write it, or is it another version?"


def test_the_places_are_those_that_users_see() -> None:
    changed = {
        name for name, text in FILES.items() if version.rewritten(text, CURRENT, NEXT) != text
    }
    assert {
        "pyproject.toml",
        "manifests/base/operator.yaml",
        "manifests/base/webhooks.yaml",
        "manifests/base/kustomization.yaml",
    } <= changed


def test_all_images_of_ours_in_the_manifests_have_this_version() -> None:
    tags = {
        tag
        for name, text in FILES.items()
        if name.startswith("manifests/")
        for tag in re.findall(r"\breprieve:(\d[\w.-]*)", text)
    }
    assert tags == {CURRENT}
