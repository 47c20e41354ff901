"""The cluster's policy, read from a ConfigMap."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.config import settings
from reprieve_policy.config.settings import FIELDS, PolicySettings
from reprieve_policy.kube.template_kinds import WELL_KNOWN, TemplateKind, TemplateKinds
from reprieve_policy.verdict import Violation, ViolationKind
from reprieve_testing.safe_texts import is_showable

SWEEP = TemplateKind("example.com", "Sweep", ("spec.trials[*].template",))
ALL = {
    "defaultPreemptionClass": "5",
    "classPriorities": "refuse",
    "disableDefaultPreemptiable": "true",
    "disableDefaultTriggerPreemption": "false",
    "podShouldBeDeletedWhenPreempted": "true",
    "quotaFit": "refuse",
    "maxPreemptionPriorityLift": "1000",
    "liftablePriorityClasses": "training, batch",
    "nonPreemptibleOnBorrowedNodes": "refuse",
    "reclaim": "auto",
    "reclaimAfter": "90s",
    "templateKinds": "example.com/Sweep: spec.trials[*].template",
    "checkpointTimeout": "5m",
    "extensionPercent": "25",
    "maxDeferral": "2m",
    "gracePeriodCap": "10s",
    "ceiling": "1h",
    "nearCompletion": "0s",
    "endWith": "evict",
    "suspendJobs": "true",
    "forceDeleteOnLostNodes": "true",
    "cleanupFinalizer": "false",
    "suspendedJobBackoff": "90s",
    "recreateBarePods": "true",
    "unreachableMinAvailable": "refuse",
    "unknownKeys": "refuse",
    "gangGate": "true",
    "gangGateTimeout": "1m",
    "classRule": "banded",
    "maxVictims": "8",
    "victimOrder": "priority",
    "patience": "90s",
    "preemptorWorth": "24h",
    "schedulers": "system:kube-scheduler, system:serviceaccount:team:my-scheduler",
    "schedulerPreemption": "synchronous",
    "agentImage": "registry.example.com:5000/team/agent:1.2@sha256:%s" % ("0" * 64),
}


def test_without_a_configmap_the_specifications_defaults_apply() -> None:
    found = settings.parse({})
    assert found == PolicySettings(
        default_class=4,
        class_priorities="off",
        default_preemptible=None,
        default_can_preempt=None,
        deletes_preempted=False,
        quota_fit="warn",
        max_preemption_priority_lift=0,
        liftable_priority_classes=None,
        non_preemptible_on_borrowed_nodes="warn",
        reclaim="manual",
        reclaim_after_seconds=300,
        template_kinds=WELL_KNOWN,
        checkpoint_timeout_seconds=600,
        agent_image=None,
        extension_percent=50,
        max_deferral_seconds=300,
        grace_cap_seconds=30,
        ceiling_seconds=1800,
        near_completion_seconds=300,
        end_with="delete",
        cleanup_finalizer=True,
        suspend_jobs=False,
        suspended_job_backoff_seconds=300,
        recreate_bare_pods=False,
        gang_gate=False,
        gang_gate_timeout_seconds=600,
        class_rule="strict",
        max_victims=3,
        victim_order="loss",
        patience_seconds=120,
        preemptor_worth_seconds=None,
        schedulers=frozenset(
            {"system:kube-scheduler", "system:serviceaccount:reprieve-system:reprieve-scheduler"}
        ),
        scheduler_preemption="auto",
    )


def test_every_field_can_be_set() -> None:
    assert set(ALL) == set(FIELDS)
    assert {field.attribute for field in FIELDS.values()} == set(
        PolicySettings.__dataclass_fields__
    )
    assert settings.parse(ALL) == PolicySettings(
        default_class=5,
        class_priorities="refuse",
        default_preemptible=False,
        default_can_preempt=True,
        deletes_preempted=True,
        quota_fit="refuse",
        max_preemption_priority_lift=1000,
        liftable_priority_classes=frozenset({"training", "batch"}),
        non_preemptible_on_borrowed_nodes="refuse",
        reclaim="auto",
        reclaim_after_seconds=90,
        template_kinds=TemplateKinds((*WELL_KNOWN.rows, SWEEP)),
        checkpoint_timeout_seconds=300,
        agent_image=ALL["agentImage"],
        extension_percent=25,
        max_deferral_seconds=120,
        grace_cap_seconds=10,
        ceiling_seconds=3600,
        near_completion_seconds=0,
        end_with="evict",
        suspend_jobs=True,
        force_delete_on_lost_nodes=True,
        suspended_job_backoff_seconds=90,
        recreate_bare_pods=True,
        unreachable_min_available="refuse",
        unknown_keys="refuse",
        gang_gate=True,
        gang_gate_timeout_seconds=60,
        class_rule="banded",
        max_victims=8,
        victim_order="priority",
        cleanup_finalizer=False,
        patience_seconds=90,
        preemptor_worth_seconds=24 * 3600,
        schedulers=frozenset({"system:kube-scheduler", "system:serviceaccount:team:my-scheduler"}),
        scheduler_preemption="synchronous",
    )


def test_keys_that_the_configmap_lacks_come_from_the_base() -> None:
    base = PolicySettings(ceiling_seconds=60, default_class=2)
    assert settings.parse({"ceiling": "2m"}, base) == PolicySettings(
        ceiling_seconds=120, default_class=2
    )


def test_space_around_a_value_is_ignored() -> None:
    assert settings.parse({"ceiling": "2m\n"}) == PolicySettings(ceiling_seconds=120)


NO_DEFAULT = (
    "must be between 0 and 6, in plain digits: only Namespaces and PriorityClasses can give a "
    "higher class"
)
BAD = {
    "two kinds on one line": (
        "templateKinds",
        "Sweep",
        ViolationKind.INVALID,
        'must be lines like "example.com/Sweep: spec.trials[*].template"',
    ),
    "a default class that Namespaces do not have by default": (
        "defaultPreemptionClass",
        "7",
        ViolationKind.INVALID,
        NO_DEFAULT,
    ),
    "names that no PriorityClass can have": (
        "liftablePriorityClasses",
        "training,,",
        ViolationKind.INVALID,
        "must be names of PriorityClasses, separated by commas",
    ),
    "a text that is no user": (
        "schedulers",
        "system:kube-scheduler,,",
        ViolationKind.INVALID,
        (
            "must be users of the API server, separated by commas, "
            'like "system:serviceaccount:kube-system:my-scheduler"'
        ),
    ),
    "the name of a scheduler that is no user": (
        "schedulers",
        "system:serviceaccount:a:b, kube-scheduler",
        ViolationKind.INVALID,
        'no user has the name "kube-scheduler": did you mean "system:kube-scheduler"?',
    ),
    "an empty list of names": (
        "liftablePriorityClasses",
        "training",
        ViolationKind.INVALID,
        "has no effect unless maxPreemptionPriorityLift is above 0",
    ),
    "a word other than these two": (
        "nonPreemptibleOnBorrowedNodes",
        "forbid",
        ViolationKind.UNSUPPORTED,
        'supported values: "warn", "refuse"',
    ),
    "lent nodes that are reclaimed by another than these two": (
        "reclaim",
        "automatic",
        ViolationKind.UNSUPPORTED,
        'supported values: "manual", "auto"',
    ),
    "a reclaim without a wait": (
        "reclaimAfter",
        "0s",
        ViolationKind.INVALID,
        "must be longer than 0s",
    ),
    "a checkpoint that may take longer than a victim waits": (
        "checkpointTimeout",
        "31m",
        ViolationKind.INVALID,
        "must be at most 30m, the ceiling",
    ),
    "a deferral that may take longer than a victim waits": (
        "maxDeferral",
        "1h",
        ViolationKind.INVALID,
        "must be at most 30m, the ceiling",
    ),
    "a reprieve that is longer than a victim waits": (
        "nearCompletion",
        "1h",
        ViolationKind.INVALID,
        "must be at most 30m, the ceiling",
    ),
    "a class out of range": (
        "defaultPreemptionClass",
        "11",
        ViolationKind.INVALID,
        NO_DEFAULT,
    ),
    "a boolean that Koordinator would not read": (
        "disableDefaultPreemptiable",
        "yes",
        ViolationKind.UNSUPPORTED,
        'supported values: "true", "false"',
    ),
    "a negative lift": (
        "maxPreemptionPriorityLift",
        "-1",
        ViolationKind.INVALID,
        "must be a whole number between 0 and 2000000000",
    ),
    "a share above the whole": (
        "extensionPercent",
        "101",
        ViolationKind.INVALID,
        "must be a whole number between 0 and 100",
    ),
    "not a number": (
        "extensionPercent",
        "half",
        ViolationKind.INVALID,
        "must be a whole number between 0 and 100",
    ),
    "a number without a unit": (
        "ceiling",
        "600",
        ViolationKind.INVALID,
        'must be a duration in whole hours, minutes and seconds, like "10m", "90s" or "1h30m"',
    ),
    "more than a week": ("ceiling", "169h", ViolationKind.INVALID, "must be at most 168h"),
}


@pytest.mark.parametrize(("key", "text", "kind", "detail"), BAD.values(), ids=BAD)
def test_bad_values_are_refused(key: str, text: str, kind: ViolationKind, detail: str) -> None:
    assert settings.parse({key: text}) == (Violation(f"data[{key}]", kind, text, detail),)


def test_an_unknown_key_is_refused_and_the_setting_that_it_resembles_is_named() -> None:
    (found,) = settings.parse({"checkpointTimout": "5m"})
    assert str(found) == (
        'data[checkpointTimout]: Unsupported value: "checkpointTimout": '
        'did you mean "checkpointTimeout"?'
    )


def test_a_very_long_key_is_not_repeated() -> None:
    refused = settings.parse({"a" * 1_000_000: ""})
    assert len(str(refused)) < 5000


def test_an_unknown_key_that_resembles_none_is_refused_with_all_settings() -> None:
    (found,) = settings.parse({"colour": "red"})
    assert found.detail.startswith('supported keys: "defaultPreemptionClass", ')
    assert '"checkpointTimeout"' in found.detail


def test_a_ceiling_is_compared_with_given_settings_not_with_defaults() -> None:
    assert settings.parse({"ceiling": "2m"}) == PolicySettings(ceiling_seconds=120)
    (found,) = settings.parse({"ceiling": "2m", "checkpointTimeout": "3m", "maxDeferral": "1m"})
    assert (
        str(found)
        == 'data[checkpointTimeout]: Invalid value: "3m": must be at most 2m, the ceiling'
    )


def test_all_violations_are_returned_at_once() -> None:
    found = settings.parse(
        {"extensionPercent": "half", "ceiling": "1h", "nonsense": "", "maxDeferral": "soon"}
    )
    assert isinstance(found, tuple)
    assert [violation.path for violation in found] == [
        "data[extensionPercent]",
        "data[nonsense]",
        "data[maxDeferral]",
    ]


# A ConfigMap's keys are letters, digits, `-`, `_` and `.`; its values are any text.
KEYS = st.sampled_from(sorted(FIELDS)) | st.text("aZ0-_.", min_size=1, max_size=5)


@given(st.dictionaries(KEYS, st.text(st.characters(exclude_categories=()), max_size=10)))
def test_any_configmap_is_either_a_policy_or_violations(data: dict[str, str]) -> None:
    found = settings.parse(data)
    assert isinstance(found, PolicySettings) or all(
        is_showable(str(violation)) for violation in found
    )


def test_every_setting_has_a_reader() -> None:
    root = Path(settings.__file__).parents[3]
    sources = [
        path
        for folder in ("policy", "operator", "webhooks")
        for path in (root / folder).rglob("*.py")
    ]
    text = "".join(
        path.read_text(encoding="utf-8") for path in sources if path.name != "settings.py"
    )
    assert [name for name in PolicySettings.__dataclass_fields__ if f".{name}" not in text] == []
