"""Whether a PodDisruptionBudget keeps a pod from being evicted, as the API server finds: its own
cases, one by one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from reprieve_policy.kube.disruption_budgets import PodDisruptionBudget
from reprieve_policy.kube.pods import Pod
from reprieve_policy.preemption import eviction_pdb

WEB = {"matchLabels": {"app": "web"}}
READY = [{"type": "Ready", "status": "True"}]
UNREADY = [{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}]
NONE, ONE = {"disruptionsAllowed": 0}, {"disruptionsAllowed": 1}
ENOUGH, TOO_FEW = (
    {"currentHealthy": 2, "desiredHealthy": 2},
    {"currentHealthy": 1, "desiredHealthy": 2},
)


def a_pod(
    conditions: Sequence[Mapping[str, str]] | None = READY, labels: Mapping[str, str] | None = None
) -> Pod:
    document = {
        "metadata": {"name": "web-1", "labels": labels},
        "status": {"conditions": conditions},
    }
    return msgspec.convert(document, Pod)


WEB_POD = a_pod(labels={"app": "web"})
UNREADY_POD = a_pod(UNREADY, labels={"app": "web"})


def a_budget(
    status: Mapping[str, Any] = NONE, *, selector: Any = WEB, **spec: Any
) -> PodDisruptionBudget:
    document = {
        "metadata": {"name": "web", "generation": 3},
        "spec": {"selector": selector, **spec},
        "status": {"observedGeneration": 3, **status},
    }
    return msgspec.convert(document, PodDisruptionBudget)


CASES: dict[str, tuple[Pod, list[PodDisruptionBudget], bool]] = {
    "without a budget nothing holds it": (WEB_POD, [], False),
    "one that allows none does": (WEB_POD, [a_budget()], True),
    "one that allows one does not": (WEB_POD, [a_budget(ONE)], False),
    "one that is spent more than once does": (
        WEB_POD,
        [a_budget({"disruptionsAllowed": -1})],
        True,
    ),
    "one that was changed since it was counted does": (
        WEB_POD,
        [a_budget({**ONE, "observedGeneration": 2})],
        True,
    ),
    "another app's does not": (WEB_POD, [a_budget(selector={"matchLabels": {"app": "db"}})], False),
    "of several the one that selects it": (
        WEB_POD,
        [a_budget(selector={"matchLabels": {"app": "db"}}), a_budget()],
        True,
    ),
    "two budgets that select it do not count as blocking": (
        WEB_POD,
        [a_budget(), a_budget()],
        False,
    ),
    "a budget without a selector selects no pod": (WEB_POD, [a_budget(selector=None)], False),
    "a budget with an empty selector selects every pod": (WEB_POD, [a_budget(selector={})], True),
    "also who has no labels": (a_pod(), [a_budget(selector={})], True),
    "whom an expression leaves": (
        a_pod(),
        [
            a_budget(
                selector={
                    "matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]
                }
            )
        ],
        True,
    ),
    "one that is not ready goes where there are enough without it": (
        UNREADY_POD,
        [a_budget({**NONE, **ENOUGH})],
        False,
    ),
    "not where there are too few": (UNREADY_POD, [a_budget({**NONE, **TOO_FEW})], True),
    "nor where none is wanted, and none allowed": (UNREADY_POD, [a_budget()], True),
    "one of which nothing is known is not ready": (
        a_pod(None, labels={"app": "web"}),
        [a_budget({**NONE, **ENOUGH})],
        False,
    ),
    "always, where the budget says so": (
        UNREADY_POD,
        [a_budget({**NONE, **TOO_FEW}, unhealthyPodEvictionPolicy="AlwaysAllow")],
        False,
    ),
    "which says nothing of one that is ready": (
        WEB_POD,
        [a_budget({**NONE, **TOO_FEW}, unhealthyPodEvictionPolicy="AlwaysAllow")],
        True,
    ),
    "nor does it where there are enough": (WEB_POD, [a_budget({**NONE, **ENOUGH})], True),
}


@pytest.mark.parametrize(("pod", "budgets", "want"), CASES.values(), ids=CASES)
def test_whether_a_budget_holds_a_pod(
    pod: Pod, budgets: list[PodDisruptionBudget], *, want: bool
) -> None:
    assert eviction_pdb.is_eviction_blocked(pod, budgets) is want
