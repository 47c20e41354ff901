"""Whether a PodDisruptionBudget keeps a pod from being evicted, as the API server finds: its own
cases, one by one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from reprieve_policy.kube.limits.disruption_budgets import PodDisruptionBudget
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
    "without a budget, no eviction is blocked": (WEB_POD, [], False),
    "a budget that allows no eviction blocks": (WEB_POD, [a_budget()], True),
    "a budget that allows one eviction does not block": (WEB_POD, [a_budget(ONE)], False),
    "a budget with a negative number of allowed evictions blocks": (
        WEB_POD,
        [a_budget({"disruptionsAllowed": -1})],
        True,
    ),
    "a budget that was changed since it was counted blocks": (
        WEB_POD,
        [a_budget({**ONE, "observedGeneration": 2})],
        True,
    ),
    "a budget of another app does not block": (
        WEB_POD,
        [a_budget(selector={"matchLabels": {"app": "db"}})],
        False,
    ),
    "of several budgets, the one that selects the pod blocks": (
        WEB_POD,
        [a_budget(selector={"matchLabels": {"app": "db"}}), a_budget()],
        True,
    ),
    "two budgets that select the pod do not count as blocking": (
        WEB_POD,
        [a_budget(), a_budget()],
        False,
    ),
    "a budget without a selector selects no pod": (WEB_POD, [a_budget(selector=None)], False),
    "a budget with an empty selector selects every pod": (WEB_POD, [a_budget(selector={})], True),
    "a budget with an empty selector selects a pod without labels": (
        a_pod(),
        [a_budget(selector={})],
        True,
    ),
    "a budget whose expression does not exclude the pod selects it": (
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
    "a pod that is not ready is evicted if enough others are healthy": (
        UNREADY_POD,
        [a_budget({**NONE, **ENOUGH})],
        False,
    ),
    "a pod that is not ready is not evicted if too few others are healthy": (
        UNREADY_POD,
        [a_budget({**NONE, **TOO_FEW})],
        True,
    ),
    "a pod that is not ready is not evicted if the budget requires and allows none": (
        UNREADY_POD,
        [a_budget()],
        True,
    ),
    "a pod without a status is not ready": (
        a_pod(None, labels={"app": "web"}),
        [a_budget({**NONE, **ENOUGH})],
        False,
    ),
    "AlwaysAllow evicts a pod that is not ready": (
        UNREADY_POD,
        [a_budget({**NONE, **TOO_FEW}, unhealthyPodEvictionPolicy="AlwaysAllow")],
        False,
    ),
    "AlwaysAllow does not evict a ready pod": (
        WEB_POD,
        [a_budget({**NONE, **TOO_FEW}, unhealthyPodEvictionPolicy="AlwaysAllow")],
        True,
    ),
    "a ready pod is not evicted even if enough others are healthy": (
        WEB_POD,
        [a_budget({**NONE, **ENOUGH})],
        True,
    ),
}


@pytest.mark.parametrize(("pod", "budgets", "want"), CASES.values(), ids=CASES)
def test_whether_a_budget_holds_a_pod(
    pod: Pod, budgets: list[PodDisruptionBudget], *, want: bool
) -> None:
    assert eviction_pdb.is_eviction_blocked(pod, budgets) is want
