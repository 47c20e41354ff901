"""An unmodified kube-scheduler with our extender, configured by the stanza as it is shipped.

The tests show which pods it preempts, and which it does not.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from realcluster.programs import WEBHOOKS
from reprieve_policy import keys
from reprieve_testing.cluster import elastic_quotas
from reprieve_testing.cluster.extender_cluster import (
    ExtenderCluster,
    a_pod,
    a_priority_class,
    extender_cluster,
)
from reprieve_testing.cluster.hack_cluster import NAMESPACE
from reprieve_testing.cluster.handle import wait_for

pytestmark = pytest.mark.cluster

LOW, MIDDLE, URGENT = "low", "middle", "urgent"
TOLERANT = "tolerant"
"""Tolerates every preemptor below 10,000 without end. Its priority is the lowest, so a scheduler
without the extender would take it first.
"""
CLASSES = (
    a_priority_class(TOLERANT, 500, minimum_preemptable_priority="10000", toleration_seconds="-1"),
    a_priority_class(LOW, 1000),
    a_priority_class(MIDDLE, 2000),
    a_priority_class(URGENT, 5000),
)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExtenderCluster]:
    with extender_cluster("test-extender", tmp_path_factory.mktemp("scheduler"), nodes=2) as made:
        for priority_class in CLASSES:
            made.cluster.kubectl.apply(priority_class)
        yield made


@pytest.fixture(autouse=True)
def cleared(ours: ExtenderCluster) -> Iterator[None]:
    yield
    ours.clear()


def of_class(value: int) -> Any:
    return {keys.PREEMPTION_CLASS: str(value)}


def assert_expected_preemption(ours: ExtenderCluster, preemptor: Any) -> None:
    """Create a preemptor; the scheduler's node and victims must be those that `reprieve simulate`
    names.
    """
    best, *_ = expected_victims(ours, preemptor)
    before = ours.names()
    ours.run(preemptor)
    pod = ours.cluster.pod(NAMESPACE, preemptor["metadata"]["name"])
    assert pod is not None
    gone = before - ours.names()
    assert gone
    assert (best["node"], {victim["name"] for victim in best["victims"]}) == (
        pod["spec"]["nodeName"],
        gone,
    )


def expected_victims(ours: ExtenderCluster, preemptor: Any) -> list[Any]:
    """Return the nodes and victims that `reprieve simulate` finds in the cluster, best first."""
    file = ours.config.with_name("preemptor.json")
    file.write_text(json.dumps(preemptor))
    done = ours.cluster.reprieve("simulate", "--preemptor", str(file), "-o", "json")
    assert done.stderr == ""
    choices: list[Any] = json.loads(done.stdout)["candidates"]
    return choices


def test_a_tolerating_pod_is_spared_and_another_pod_of_its_node_is_preempted(
    ours: ExtenderCluster,
) -> None:
    ours.run(a_pod("spared", TOLERANT, 4, node="kwok-0"), a_pod("taken", MIDDLE, 4, node="kwok-0"))
    assert_expected_preemption(ours, a_pod("preemptor", URGENT, 4, node="kwok-0"))
    assert ours.names() == {"spared", "preemptor"}


def test_if_a_node_has_only_protected_pods_those_of_another_node_are_preempted(
    ours: ExtenderCluster,
) -> None:
    ours.run(a_pod("spared", TOLERANT, 8, node="kwok-0"), a_pod("taken", MIDDLE, 8, node="kwok-1"))
    assert_expected_preemption(ours, a_pod("preemptor", URGENT, 8))
    assert ours.names() == {"spared", "preemptor"}


def test_a_preemptor_preempts_lower_classes_only(ours: ExtenderCluster) -> None:
    ours.run(
        a_pod("higher", LOW, 8, node="kwok-0", labels=of_class(6)),
        a_pod("lower", MIDDLE, 8, node="kwok-1", labels=of_class(3)),
    )
    assert_expected_preemption(ours, a_pod("preemptor", URGENT, 8, labels=of_class(5)))
    assert ours.names() == {"higher", "preemptor"}


def test_if_all_pods_are_protected_none_is_preempted(ours: ExtenderCluster) -> None:
    before = ours.calls("nothing")
    ours.run(a_pod("a", TOLERANT, 8, node="kwok-0"), a_pod("b", TOLERANT, 8, node="kwok-1"))
    preemptor = a_pod("preemptor", URGENT, 8)
    assert expected_victims(ours, preemptor) == []
    ours.cluster.create(preemptor)
    ours.wait_calls("nothing", before)
    assert ours.names() == {"a", "b", "preemptor"}


def test_calls_with_whole_pods_are_read_as_well_as_uids(ours: ExtenderCluster) -> None:
    ours.configure_extender(nodeCacheCapable=False)
    try:
        ours.run(
            a_pod("spared", TOLERANT, 4, node="kwok-0"), a_pod("taken", MIDDLE, 4, node="kwok-0")
        )
        ours.run(a_pod("preemptor", URGENT, 4, node="kwok-0"))
        assert ours.names() == {"spared", "preemptor"}
    finally:
        ours.configure_extender()


def test_a_changed_toleration_applies_to_the_next_call(ours: ExtenderCluster) -> None:
    ours.cluster.kubectl.apply(a_priority_class("changing", 500))
    ours.run(a_pod("a", "changing", 4, node="kwok-0"), a_pod("b", MIDDLE, 4, node="kwok-0"))
    policy = {"minimum_preemptable_priority": "10000", "toleration_seconds": "-1"}
    ours.cluster.kubectl.apply(a_priority_class("changing", 500, **policy))
    ours.run(a_pod("preemptor", URGENT, 4, node="kwok-0"))
    assert ours.names() == {"a", "preemptor"}


def stop_webhooks(ours: ExtenderCluster) -> None:
    ours.programs.stop(WEBHOOKS, kill=True)


def hang_webhooks(ours: ExtenderCluster) -> None:
    ours.signal_webhooks(signal.SIGSTOP)


def ask_elsewhere(ours: ExtenderCluster) -> None:
    ours.configure_extender(preemptVerb="nowhere")


def recover(ours: ExtenderCluster) -> None:
    if ours.programs.pid(WEBHOOKS) is None:
        ours.programs.start(WEBHOOKS)
    ours.signal_webhooks(signal.SIGCONT)
    ours.programs.wait_until_ready(WEBHOOKS)
    ours.configure_extender()


@pytest.mark.parametrize(
    "break_it", [stop_webhooks, hang_webhooks, pytest.param(ask_elsewhere, marks=pytest.mark.slow)]
)
def test_without_an_answer_in_time_the_scheduler_uses_its_own_choice(
    ours: ExtenderCluster, break_it: Callable[[ExtenderCluster], None]
) -> None:
    ours.run(a_pod("taken", TOLERANT, 4, node="kwok-0"), a_pod("spared", MIDDLE, 4, node="kwok-0"))
    break_it(ours)
    try:
        ours.run(a_pod("preemptor", URGENT, 4, node="kwok-0"))
        assert ours.names() == {"spared", "preemptor"}
    finally:
        recover(ours)


def test_a_call_that_is_read_after_the_schedulers_timeout_is_counted_as_late(
    ours: ExtenderCluster,
) -> None:
    # The scheduler keeps the connection of its last call. Without this call, nothing of the next
    # one would ever arrive.
    ours.run(a_pod("before", LOW, 8, node="kwok-1"))
    ours.run(a_pod("opener", URGENT, 8, node="kwok-1"))
    ours.run(a_pod("taken", TOLERANT, 4, node="kwok-0"), a_pod("spared", MIDDLE, 4, node="kwok-0"))
    before = ours.outcomes()
    hang_webhooks(ours)
    try:
        ours.run(a_pod("preemptor", URGENT, 4, node="kwok-0"))
        assert ours.names() == {"opener", "spared", "preemptor"}
    finally:
        ours.signal_webhooks(signal.SIGCONT)
    ours.wait_calls("late", before.get("late", 0))
    assert ours.outcomes() == before | {"late": before.get("late", 0) + 1}


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "no JSON": lambda answer: answer[: len(answer) // 2],
    "a pod that is not on the node": lambda answer: re.sub(
        b'"UID":"[^"]+"', b'"UID":"nobody"', answer
    ),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_after_a_broken_answer_the_scheduler_uses_its_own_choice_and_the_call_is_counted(
    ours: ExtenderCluster, spoil: Callable[[bytes], bytes]
) -> None:
    ours.run(a_pod("taken", TOLERANT, 4, node="kwok-0"), a_pod("spared", MIDDLE, 4, node="kwok-0"))
    before = ours.calls("chosen")
    try:
        with ours.with_corrupted_answers(spoil) as answers:
            ours.run(a_pod("preemptor", URGENT, 4, node="kwok-0"))
    finally:
        ours.configure_extender()
    assert ours.names() == {"spared", "preemptor"}
    assert answers
    assert ours.calls("chosen") - before == len(answers)


IN_QUOTA = {keys.QUOTA_NAME: "bounded"}
KEPT = {**IN_QUOTA, keys.PREEMPTIBLE: "false"}


@pytest.fixture
def quotas(ours: ExtenderCluster) -> Iterator[None]:
    """Install ElasticQuotas, and start the webhooks again: they look for them once a minute."""
    elastic_quotas.install(ours.cluster.kubectl)
    stop_webhooks(ours)
    recover(ours)
    yield
    ours.cluster.kubectl.read("delete", "elasticquotas", "--all", "-n", NAMESPACE)


def bound(ours: ExtenderCluster, least: int) -> None:
    """Set the quota's min, and wait until the webhooks know it."""
    quota = elastic_quotas.a_quota("bounded", str(least), "40")
    quota["metadata"]["namespace"] = NAMESPACE
    ours.cluster.kubectl.apply(quota)
    over = json.dumps(a_pod("over", URGENT, least + 1, labels=KEPT))
    creating = ("create", "-n", NAMESPACE, "--dry-run=server", "-f", "-")
    wait_for(
        "the webhooks know the quota",
        lambda: f"over min {least}" in ours.cluster.kubectl.run(*creating, stdin=over).output,
    )


@pytest.mark.usefixtures("quotas")
def test_no_pod_is_preempted_for_one_that_its_quota_would_not_admit(ours: ExtenderCluster) -> None:
    """With min 4, used 4, a non-preemptible pod of 2 CPU evicts no pod."""
    bound(ours, 4)
    ours.run(
        a_pod("kept", LOW, 4, node="kwok-0", labels=KEPT),
        a_pod("taken", LOW, 4, node="kwok-0", labels=IN_QUOTA),
    )
    before = ours.calls("quota-exceeded")
    preemptor = a_pod("preemptor", URGENT, 2, node="kwok-0", labels=KEPT)
    assert expected_victims(ours, preemptor) == []
    ours.cluster.create(preemptor)
    ours.wait_calls("quota-exceeded", before)
    assert ours.names() == {"kept", "taken", "preemptor"}
    ours.cluster.kubectl.read("delete", "pod", "preemptor", "-n", NAMESPACE, "--wait=true")
    bound(ours, 6)
    ours.run(a_pod("admitted", URGENT, 2, node="kwok-0", labels=KEPT))
    assert ours.names() == {"kept", "admitted"}
