"""The base has no policy, which is the admin's own; a command prints it with every default."""

import re
from typing import Any

import yaml
from click.testing import CliRunner

from reprieve_cli.main import reprieve
from reprieve_policy.config import settings
from reprieve_policy.config.settings import FIELDS, PolicySettings
from reprieve_testing import manifests
from reprieve_webhooks.settings import Settings

TEXT = CliRunner().invoke(reprieve, ["render", "policy-defaults"]).output
DOCUMENT: Any = yaml.safe_load(TEXT)
DATA = DOCUMENT["data"]


def test_the_base_has_no_policy_that_applying_it_again_would_reset() -> None:
    assert manifests.of_kind("ConfigMap") == []


def test_the_command_prints_exactly_the_defaults() -> None:
    assert settings.parse(DATA) == PolicySettings()


def test_the_printed_object_is_the_one_that_the_programs_read() -> None:
    metadata = DOCUMENT["metadata"]
    assert DOCUMENT["kind"] == "ConfigMap"
    assert metadata["name"] == Settings().policy_config_map
    assert metadata["namespace"] == Settings().namespace


def test_the_command_prints_every_setting_once_with_a_comment() -> None:
    lines = TEXT.partition("\ndata:\n")[2]
    stated = re.findall(r"^  (?:# )?([a-z][a-zA-Z]+): ", lines, re.MULTILINE)
    assert sorted(stated) == sorted(FIELDS)
    assert lines.startswith("  # ")


def test_a_demonstrations_policy_can_be_read() -> None:
    (policy,) = manifests.read(manifests.MANIFESTS / "overlays" / "demo" / "policy" / "policy.yaml")
    changed = settings.parse(policy["data"])
    assert isinstance(changed, PolicySettings)
    assert changed.ceiling_seconds <= 60
