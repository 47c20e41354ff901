"""The guard beside the extender: one refusal marks the whole set that was chosen, so that its victims save at the same time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from realcluster.programs import OPERATOR
from reprieve_policy import keys
from reprieve_testing.cluster import wait_for
from reprieve_testing.extended import Extended, a_pod, a_priority_class, extended
from reprieve_testing.hack_cluster import NAMESPACE, SECONDS

pytestmark = pytest.mark.cluster

LOW, URGENT = "sets-low", "sets-urgent"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extended]:
    with extended("test-guard-sets", tmp_path_factory.mktemp("scheduler"), nodes=1) as made:
        for priority_class in (a_priority_class(LOW, 1000), a_priority_class(URGENT, 5000)):
            made.cluster.kubectl.apply(priority_class)
        made.programs.start(OPERATOR)
        made.programs.wait_until_ready(OPERATOR)
        leads = "\nreprieve_leader 1.0\n"
        wait_for("leadership", lambda: leads in made.programs.read(OPERATOR, "/metrics"), SECONDS)
        yield made


def test_all_victims_of_one_preemptor_are_told_at_once_and_it_is_placed_when_all_have_saved(ours: Extended) -> None:
    victims = [a_pod(name, LOW, 4, node="kwok-0") for name in ("a", "b")]
    for victim in victims:
        victim["metadata"]["annotations"] = {keys.CHECKPOINT_HINT: "annotation:"}
    ours.run(*victims)
    ours.cluster.create(a_pod("preemptor", URGENT, 8, node="kwok-0"))
    states = {name: wait_for(f"{name} is told", lambda name=name: told(ours, name), SECONDS) for name in ("a", "b")}
    asked = [datetime.fromisoformat(state["requestedAt"]) for state in states.values()]
    # The second one's deletion is only sent once the first has gone.
    assert abs((asked[1] - asked[0]).total_seconds()) < 2
    assert len({state["reason"] for state in states.values()}) == 1
    time.sleep(8)  # That nobody insists shows in time only.
    assert len(deletions(ours)) <= 8
    for name, state in states.items():
        answer = json.dumps({"id": state["id"], "state": "saved"})
        ours.cluster.kubectl.read("annotate", "pod", name, "-n", NAMESPACE, f"{keys.CHECKPOINT_ANSWER}={answer}")
    ours.cluster.wait_running("preemptor")
    assert ours.names() == {"preemptor"}


def deletions(ours: Extended) -> list[int]:
    """Return what was answered to the scheduler's deletions."""
    entries = map(json.loads, ours.cluster.cluster.audit_log.read_text().splitlines())
    return [
        entry["responseStatus"]["code"]
        for entry in entries
        if (entry["verb"], entry["user"]["username"]) == ("delete", "system:kube-scheduler")
        and entry["stage"] == "ResponseComplete"
    ]


def told(ours: Extended, name: str) -> Any:
    """Return a pod's state once it is asked to save."""
    pod = ours.cluster.kubectl.get("pod", name, "-n", NAMESPACE)
    state = json.loads(pod["metadata"].get("annotations", {}).get(keys.EVICTION, "{}"))
    return state if state.get("phase") == "hinted" else None
