"""docs/cleaners.md agrees with the code and with the example that it shows."""

import inspect
import re

import reprieve
from reprieve_operator.cluster.event_recorder import REASONS
from reprieve_operator.settings import OperatorSettings
from reprieve_policy import keys
from reprieve_policy.config.settings import FIELDS
from reprieve_policy.lifecycle.cleanup import CleanerTurn
from reprieve_testing import manifests

PAGE = (manifests.ROOT / "docs" / "cleaners.md").read_text(encoding="utf-8")
EXAMPLE = (manifests.EXAMPLES / "cleaner" / "release_licence.py").read_text(encoding="utf-8")


def test_the_page_shows_the_whole_example_which_has_twenty_lines() -> None:
    assert f"```python\n{EXAMPLE}```" in PAGE
    assert len([line for line in EXAMPLE.splitlines() if line.strip()]) <= 20


def test_every_event_and_setting_on_the_page_exists() -> None:
    named = set(re.findall(r"Event\s`([A-Za-z]+)`", PAGE))
    assert named == {"CleanupCeilingReached", "WaitingForFinalizers", "CleanersTimedOut"}
    assert named <= REASONS.keys()
    assert "cleanupFinalizer" in FIELDS
    ceiling = OperatorSettings().cleanup_ceiling_seconds
    assert f"| {ceiling:.0f} seconds after the grace period (`--cleanup-ceiling-seconds`)" in PAGE


def test_every_argument_of_the_decorator_is_on_the_page() -> None:
    arguments = inspect.signature(reprieve.on.eviction).parameters
    for name in arguments.keys() - {"finalizer", "registry"}:
        assert f"`{name}" in PAGE
    for turn in CleanerTurn:
        assert f"`{turn}`" in PAGE


def test_the_keys_on_the_page_are_those_of_the_code() -> None:
    assert {keys.CLEANUP_FINALIZER, keys.CLEANERS_BEFORE} <= set(
        re.findall(r"reprieve\.dev/[a-z-]+", PAGE)
    )
