"""What protects a pod against preemption, and until when."""

from dataclasses import dataclass, replace
from datetime import datetime

import pytest

from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.preemption_class import ClassSet
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import pod_views
from reprieve_policy.lifecycle.eviction import Protection, ProtectionReason, Source
from reprieve_policy.preemption import protection
from reprieve_testing.objects.builders import NOW, PodBuilder, a_pod, after

ALL_CLASSES = NamespacePolicy(allowed_classes=ClassSet(frozenset(range(11))))
ORDINARY = a_pod()
DEFAULTS = PolicySettings()
FOR_GOOD = Protection(ProtectionReason.NON_PREEMPTIBLE, None)


def ends_in(seconds: float) -> Walltime:
    return Walltime(after(seconds - 3600), 3600)


def almost(seconds: float) -> Protection:
    return Protection(ProtectionReason.NEAR_COMPLETION, after(seconds))


@dataclass(frozen=True, kw_only=True)
class Case:
    pod: PodBuilder = ORDINARY
    walltime: Walltime | None = None
    refused: float | None = None
    """When it was first refused, in seconds from now."""
    settings: PolicySettings = DEFAULTS
    namespace: NamespacePolicy = ALL_CLASSES
    want: Protection | None = None


CASES = {
    "an ordinary pod is not protected": Case(),
    "class 10 is never preempted": Case(pod=a_pod().in_class(10).with_hint(), want=FOR_GOOD),
    "class 7 without a checkpoint is never preempted": Case(pod=a_pod().in_class(7), want=FOR_GOOD),
    "class 9 with `checkpoint: none` is never preempted": Case(
        pod=a_pod().in_class(9).with_checkpoint("none"), want=FOR_GOOD
    ),
    "class 9 that can save is preemptible": Case(pod=a_pod().in_class(9).with_hint()),
    "class 6 without a checkpoint is preemptible": Case(pod=a_pod().in_class(6)),
    "a sensitive workload is never preempted, despite its label": Case(
        pod=a_pod().in_class(3).with_hint(),
        namespace=NamespacePolicy(workload_type="sensitive"),
        want=FOR_GOOD,
    ),
    "a class that its Namespace does not allow protects no pod": Case(
        pod=a_pod().in_class(8), namespace=NamespacePolicy()
    ),
    "Koordinator's label protects": Case(
        pod=a_pod().labelled("quota.scheduling.koordinator.sh/preemptible", "false"), want=FOR_GOOD
    ),
    "a pod that ends in five minutes may finish": Case(walltime=ends_in(300), want=almost(300)),
    "a pod that ends in a second may finish": Case(walltime=ends_in(1), want=almost(1)),
    "a pod that ends in more than five minutes is not protected": Case(walltime=ends_in(301)),
    "a pod whose walltime is over is not protected": Case(walltime=ends_in(0)),
    "a pod whose walltime was over a minute ago is not protected": Case(walltime=ends_in(-60)),
    "an admin's threshold of near completion counts": Case(
        walltime=ends_in(60), settings=PolicySettings(near_completion_seconds=60), want=almost(60)
    ),
    "a threshold of 0 protects no pod": Case(
        walltime=ends_in(1), settings=PolicySettings(near_completion_seconds=0)
    ),
    "the ceiling bounds the threshold": Case(
        walltime=ends_in(200), settings=PolicySettings(ceiling_seconds=199)
    ),
    "a pod that was refused for less than the ceiling may finish": Case(
        walltime=ends_in(60), refused=-1700, want=almost(60)
    ),
    "a pod may finish until the ceiling": Case(
        walltime=ends_in(60), refused=-1770, want=almost(30)
    ),
    "a pod that was refused for the ceiling may not finish": Case(
        walltime=ends_in(60), refused=-1800
    ),
    "permanent protection ends at no ceiling": Case(
        pod=a_pod().in_class(10), walltime=ends_in(60), refused=-1800, want=FOR_GOOD
    ),
    "permanent protection comes before near completion": Case(
        pod=a_pod().in_class(10), walltime=ends_in(60), want=FOR_GOOD
    ),
    "a walltime that ends after the last date protects no pod": Case(
        walltime=Walltime(NOW, 2**63 - 1)
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_protects_a_pod(case: Case) -> None:
    (view,) = pod_views(case.pod.build())
    facts = Facts(settings=case.settings, namespace=case.namespace)
    since = None if case.refused is None else after(case.refused)
    found = protection.decide_protection(view, facts, case.walltime, NOW, refused_since=since)
    assert found == case.want


OF_GANG = {
    "no member is protected": ([None, None], None),
    "no pod": ([], None),
    "a pod near completion protects no other": ([None, almost(60)], None),
    "if all members are near completion, the last to end counts": (
        [almost(60), almost(300), almost(5)],
        almost(300),
    ),
    "a non-preemptible pod protects all": ([almost(60), FOR_GOOD, None], FOR_GOOD),
}


@pytest.mark.parametrize(("found", "want"), OF_GANG.values(), ids=OF_GANG)
def test_what_protects_a_gang(found: list[Protection | None], want: Protection | None) -> None:
    assert protection.protection_of_gang(found) == want


def test_only_a_scheduler_may_be_refused() -> None:
    assert [source for source in Source if source.is_preemption] == [Source.KOORDINATOR]


CLAIM = a_pod().labelled(keys.PREEMPTIBLE, "false")
CLAIMS = {
    "older than the installation": (CLAIM, {}, NOW, True),
    "younger": (CLAIM, {}, after(-7200), False),
    "the installation is not known": (CLAIM, {}, None, False),
    "a pod that claims nothing": (ORDINARY, {}, NOW, False),
    "a pod that is being deleted": (
        CLAIM,
        {"deletionTimestamp": "2026-11-21T12:00:00Z"},
        NOW,
        False,
    ),
    "a pod of the system": (CLAIM, {"namespace": "kube-system"}, NOW, False),
    "a manifest": (CLAIM, {"creationTimestamp": None}, NOW, False),
}


@pytest.mark.parametrize(
    ("pod", "fields", "checked_since", "is_unchecked"), CLAIMS.values(), ids=CLAIMS
)
def test_claims_that_no_admission_has_checked(
    pod: PodBuilder,
    fields: dict[str, str | None],
    checked_since: datetime | None,
    *,
    is_unchecked: bool,
) -> None:
    created = {"creationTimestamp": "2026-11-21T11:00:00Z", "namespace": "team"}
    metadata = replace(pod.build().metadata, **(created | fields))
    assert protection.is_unchecked_claim(metadata, checked_since) is is_unchecked
