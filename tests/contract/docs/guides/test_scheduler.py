"""docs/scheduler.md: its tables agree with the program, and its command applies an existing
manifest.
"""

import re

import pytest
from prometheus_client import CollectorRegistry

from bench import extender as bench
from reprieve_testing import manifests
from reprieve_webhooks.extender.metrics import FALLBACKS, CallOutcome, ExtenderMetrics
from reprieve_webhooks.extender.service import ExtenderResponse
from reprieve_webhooks.settings import Settings

TEXT = (manifests.ROOT / "docs" / "scheduler.md").read_text(encoding="utf-8")


def table(head: str) -> dict[str, str]:
    """Return the first two columns of the table with this head."""
    _, _, rest = TEXT.partition(f"| {head} |")
    rows = re.findall(r"^\| `([^`]+)` \|([^|]*)\|", rest.partition("\n\n")[0], re.MULTILINE)
    return {name: value.strip().strip("`") for name, value in rows}


def test_every_outcome_has_its_row_and_its_status() -> None:
    status = {outcome.value: str(ExtenderResponse(outcome, b"").status) for outcome in CallOutcome}
    assert table("outcome") == status | {"malformed": "4xx"}
    assert {outcome for outcome, code in table("outcome").items() if code != "200"} == FALLBACKS


def test_the_flags_and_their_defaults_are_the_programs() -> None:
    settings = Settings()
    flags = {name: getattr(settings, name[2:].replace("-", "_")) for name in table("flag")}
    shown = {
        name: ",".join(value) if isinstance(value, tuple) else str(value).lower()
        for name, value in flags.items()
    }
    assert table("flag") == shown
    assert len(flags) == sum("extender" in name for name in Settings.__dataclass_fields__)


def test_a_call_about_5000_nodes_with_whole_pods_has_the_documented_size_and_is_accepted() -> None:
    nodes, pods = 50, 10
    size = len(bench.call(bench.collections(nodes, pods, 1), pods, whole=True)) * (5000 / nodes)
    (documented,) = re.findall(r"^\| 5,000 \|.* ([0-9]+\.[0-9]) MiB \|", TEXT, re.MULTILINE)
    assert size / 2**20 == pytest.approx(float(documented), rel=0.02)
    assert size < Settings().max_extender_bytes


def test_every_metric_is_in_the_table_with_its_labels() -> None:
    registry = CollectorRegistry()
    metrics = ExtenderMetrics(registry)
    metrics.count_rejected_nodes({"x": 1})
    shown = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in registry.collect()
    }
    assert set(table("metric")) == shown | {"reprieve_facts_age_seconds"}


def test_the_manifest_to_apply_exists() -> None:
    named = set(re.findall(r"manifests/[a-z/.-]*[a-z]", TEXT))
    assert named == {
        "manifests/overlays/extender",
        "manifests/scheduler/stanza.yaml",
        "manifests/scheduler/second",
    }
    assert all((manifests.ROOT / path).exists() for path in named)
