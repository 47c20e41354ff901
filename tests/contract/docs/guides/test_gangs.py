"""docs/gangs.md agrees with the code: names, bounds and defaults."""

import re

from reprieve_operator.cluster.event_recorder import REASONS
from reprieve_policy.config.settings import FIELDS, PolicySettings
from reprieve_policy.gangs import disruption
from reprieve_policy.kube.values import duration
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_testing import manifests

PAGE = (manifests.ROOT / "docs" / "gangs.md").read_text(encoding="utf-8")


def test_every_event_on_the_page_exists() -> None:
    assert set(re.findall(r"Event `([A-Za-z]+)`", PAGE)) <= REASONS.keys()


def test_the_largest_gang_has_the_promised_size() -> None:
    assert f"Of a gang of more than {disruption.MAX_MEMBERS:,} pods" in PAGE


def test_the_settings_of_the_gate_have_the_defaults_of_the_policy() -> None:
    assert {"gangGate", "gangGateTimeout"} <= FIELDS.keys()
    minutes = duration.render(PolicySettings().gang_gate_timeout_seconds).removesuffix("m")
    assert f"`gangGateTimeout` ({minutes} minutes)" in PAGE


def test_the_phases_that_wait_for_others_are_phases() -> None:
    assert "(`settled` and `saved` are" in " ".join(PAGE.split())
    assert {"settled", "saved"} <= {phase.value for phase in Phase}
