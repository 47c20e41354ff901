"""docs/settings.md lists every setting of the ConfigMap, with its default."""

import re

import pytest
import yaml
from click.testing import CliRunner

from reprieve_cli.main import reprieve
from reprieve_policy.config.settings import FIELDS
from reprieve_testing import manifests

PAGE = (manifests.ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
DEFAULTS = yaml.safe_load(CliRunner().invoke(reprieve, ["render", "policy-defaults"]).output)[
    "data"
]
SHOWN = dict(re.findall(r"^\| `([a-zA-Z]+)` \| (unset|`[^`]*`) \|", PAGE, re.MULTILINE))


def test_the_page_lists_each_setting_once() -> None:
    assert sorted(re.findall(r"^\| `([a-zA-Z]+)` \|", PAGE, re.MULTILINE)) == sorted(FIELDS)


@pytest.mark.parametrize("key", sorted(FIELDS))
def test_a_settings_default_is_the_one_that_the_command_prints(key: str) -> None:
    assert SHOWN[key].strip("`") == DEFAULTS.get(key, "unset")
