"""Reprieve as a responder to native EvictionRequests, which the API server begins to serve later.

The API server begins to serve the types while everything runs. 1.37 ships no controller for them:
`reprieve_testing.eviction_controller` stands in for it, and the API server checks what it writes.
Native PodGroups, which it begins to serve with them, count from then on too.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from realcluster import install
from realcluster.kubectl import Done
from realcluster.programs import WEBHOOKS, Place, Programs
from reprieve_policy import keys
from reprieve_policy.eviction_requests.objects import RESPONDER_NAME, RESPONDER_PRIORITY
from reprieve_testing import manifests
from reprieve_testing.cluster import Program, wait_for
from reprieve_testing.eviction_controller import IMPERATIVE, REQUESTER, FakeEvictionController
from reprieve_testing.hack_cluster import NAMESPACE, OwnCluster, own_cluster
from reprieve_testing.impersonated_users import until_answered

pytestmark = pytest.mark.cluster

GATES, SERVED = "EvictionRequestAPI=true,GenericWorkload=true", "api/all=true"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/podgroups"
OURS = {"name": RESPONDER_NAME, "priority": RESPONDER_PRIORITY}
POLLS = {keys.CHECKPOINT_HINT: "annotation:", keys.CHECKPOINT_TIMEOUT: "60s"}
MOST_WRITES = 5
EVICTED = "create eviction"
OVER = ("the pod is gone", "the pod has ended")
"""Whichever is seen first: its containers end before its object does."""


@dataclass
class World:
    """A cluster with all of Reprieve, and what was so before its API server served the types."""

    cluster: OwnCluster
    controller: FakeEvictionController
    operator: Program
    before: Any
    """A pod that was made then."""
    groups_before: str
    """The API server's answer about PodGroups before it serves them."""
    complaints: str
    """What the operator had logged by then of what it could not read."""

    def start_operator(self) -> None:
        """Start the successor of one that was killed."""
        self.operator = self.cluster.start_operator()
        self.operator.wait_leading()

    def victim(self, name: str, **metadata: Any) -> Any:
        """Create a pod that wants a checkpoint, and return it once it runs."""
        return self.cluster.create_pod(NAMESPACE, name, **{"annotations": POLLS, **metadata})

    def asked(self, name: str, **metadata: Any) -> Any:
        """Return a pod that an Eviction of its name evicts, once its workload is notified."""
        self.controller.request_eviction(self.victim(name, **metadata))
        return self.cluster.wait_phase(NAMESPACE, name, "hinted")

    def save(self, pod: Any) -> None:
        """Answer in the place of the workload."""
        request = json.loads(pod["metadata"]["annotations"][keys.CHECKPOINT_REQUEST])
        answer = json.dumps({"state": "saved", "id": request["id"], "step": 7})
        self.cluster.annotate(
            NAMESPACE, pod["metadata"]["name"], f"{keys.CHECKPOINT_ANSWER}={answer}"
        )

    def said(self, name: str) -> Any:
        return self.controller.responder_status(name, RESPONDER_NAME)

    def wait_said(self, name: str, field: str, text: str = "") -> Any:
        """Return Reprieve's status of an Eviction, once a field of it has the text."""

        def look() -> Any:
            status = self.said(name)
            return status if text in status.get(field, "") and field in status else None

        return wait_for(f"{field} {text}", look)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with own_cluster("test-evictions", "--kwok-nodes", 2) as cluster:
        port = cluster.cluster.port("webhooks")
        install.install(cluster.kubectl, install.LOCAL, port)
        cluster.kubectl.read("apply", "-f", manifests.EXAMPLES / "eviction-requests.yaml")
        cluster.set_policy(evictionResponder="true")
        flags = [
            "--listen-address",
            "127.0.0.1",
            "--listen-port",
            port,
            "--serving-ips",
            "127.0.0.1",
        ]
        place = Place([*flags, "--drain-seconds", 0.5], f"https://127.0.0.1:{port}")
        programs = Programs(cluster.cluster.home, cluster.kubectl, {WEBHOOKS: place})
        programs.start(WEBHOOKS)
        operator = cluster.start_operator()
        try:
            programs.wait_until_ready(WEBHOOKS)
            until_answered("denied", lambda: refused(cluster))
            operator.wait_leading()
            before = cluster.create_pod(NAMESPACE, "before", annotations=POLLS)
            groups_before = cluster.kubectl.run("get", "--raw", GROUPS).stderr
            complaints = operator.log.read_text()
            serve_evictions(cluster)
            yield World(
                cluster,
                FakeEvictionController(cluster.kubectl, NAMESPACE),
                operator,
                before,
                groups_before,
                complaints,
            )
            assert cluster.programs[-1].stop() == 0
        finally:
            programs.stop(WEBHOOKS)
            cluster.stop_programs()


def budget(world: World, at_least: int) -> None:
    """Forbid any disruption of the pods of app `db`; wait until the disruption controller counted
    them.
    """
    spec = {"minAvailable": at_least, "selector": {"matchLabels": {"app": "db"}}}
    metadata = {"name": "db", "namespace": NAMESPACE}
    found = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
        "spec": spec,
    }
    world.cluster.kubectl.read("apply", "-f", "-", stdin=json.dumps(found))

    def is_counted() -> bool:
        seen = world.cluster.kubectl.get("pdb", "db", "-n", NAMESPACE)
        status = seen.get("status", {})
        is_seen = status.get("observedGeneration") == seen["metadata"]["generation"]
        # Where no checkpoint is needed, the pod may be gone before the test reads it.
        return is_seen and status.get("currentHealthy", 0) >= at_least

    wait_for("the budget is counted", is_counted)


def refused(cluster: OwnCluster) -> Done:
    metadata = {"name": "refused", "labels": {keys.PREEMPTION_CLASS: "x"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    return cluster.kubectl.run("create", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(pod))


def serve_evictions(cluster: OwnCluster) -> None:
    """Upgrade the API server under all that runs; return once new pods name us as a responder."""
    settings = replace(cluster.cluster.settings, feature_gates=GATES, runtime_config=SERVED)
    cluster.cluster = replace(cluster.cluster, settings=settings)
    cluster.kill_component("kube-apiserver")
    cluster.start_component("kube-apiserver")
    probe = {
        "metadata": {"name": "probe", "annotations": POLLS},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    document = json.dumps({"apiVersion": "v1", "kind": "Pod", **probe})
    words = ("create", "-n", NAMESPACE, "-f", "-", "--dry-run=server", "-o", "json")
    # As long as the webhooks remember what was not served.
    wait_for(
        "new pods name us",
        lambda: RESPONDER_NAME in cluster.kubectl.run(*words, stdin=document).stdout,
    )


def test_before_they_are_served_no_pod_names_us_and_nothing_complains(world: World) -> None:
    assert "evictionResponders" not in world.before["spec"]
    assert "evictions" not in world.complaints
    assert "could not find the requested resource" in world.groups_before
    assert "podgroups" not in world.complaints


def test_a_new_pod_that_wants_a_checkpoint_names_us_and_no_other_does(world: World) -> None:
    assert world.victim("wants")["spec"]["evictionResponders"] == [OURS]
    others = [{"name": "acme.io/other", "priority": 5000}]
    beside = world.victim("wants-others-too", spec={"evictionResponders": others})
    assert beside["spec"]["evictionResponders"] == [*others, OURS]
    ordinary = world.victim("ordinary", annotations={})
    assert "evictionResponders" not in ordinary["spec"]
    grouped = world.victim("grouped", spec={"schedulingGroup": {"podGroupName": "train"}})
    assert "evictionResponders" not in grouped["spec"]


def test_a_request_gives_notice_says_how_far_it_is_and_is_completed(world: World) -> None:
    victim = world.asked("evicted")
    state = json.loads(victim["metadata"]["annotations"][keys.EVICTION])
    assert (state["source"], state["initiator"]) == ("eviction-request", REQUESTER)
    request = json.loads(victim["metadata"]["annotations"][keys.CHECKPOINT_REQUEST])
    assert request["reason"] == "eviction requested"

    status = world.wait_said("evicted", "message", "was asked to save its work")

    assert status["heartbeatTime"] >= status["startTime"]
    assert status["expectedCompletionTime"] == state["deadline"].partition(".")[0].rstrip("Z") + "Z"
    assert "completionTime" not in status
    world.save(victim)
    world.cluster.wait_gone(NAMESPACE, "evicted")
    done = world.wait_said("evicted", "completionTime")
    assert done["message"] in OVER
    # The API server takes it from the controller only if we have completed.
    world.controller.complete("evicted")
    wait_for(
        "Event",
        lambda: "SoftEvictionCompleted" in world.cluster.event_reasons(NAMESPACE, "evicted"),
    )


def test_a_request_that_is_withdrawn_stands_the_victim_down(world: World) -> None:
    world.asked("spared")
    world.controller.withdraw("spared")

    def stays() -> Any:
        pod = world.cluster.pod(NAMESPACE, "spared")
        return pod if pod and keys.SOFT_EVICTION not in pod["metadata"]["labels"] else None

    pod = wait_for("the mark is gone", stays)
    assert "deletionTimestamp" not in pod["metadata"]
    assert keys.EVICTION_REQUEST not in pod["metadata"]["annotations"]
    assert json.loads(pod["metadata"]["annotations"][keys.EVICTION])["outcome"] == "cancelled"
    assert json.loads(pod["metadata"]["annotations"][keys.CHECKPOINT_REQUEST])["cancelled"]
    assert "completionTime" not in world.said("spared")


def test_one_that_is_withdrawn_and_made_again_is_not_taken_back_by_that(world: World) -> None:
    """Without this, a user could keep a pod from being a victim for as long as they like.

    Other pods would wait for its room meanwhile.
    """
    pod = world.asked("renewed")
    world.controller.withdraw("renewed")
    wait_for(
        "Event",
        lambda: "SoftEvictionCancelled" in world.cluster.event_reasons(NAMESPACE, "renewed"),
    )
    world.controller.delete("renewed")
    world.controller.request_eviction(pod)
    victim = world.cluster.wait_phase(NAMESPACE, "renewed", "hinted")
    state = json.loads(victim["metadata"]["annotations"][keys.EVICTION])
    assert ("source" in state, state["mustEvict"]) == (False, True)
    world.wait_said("renewed", "message", "was asked to save its work")
    world.controller.withdraw("renewed")

    def is_withdrawn() -> Any:
        found = world.cluster.pod(NAMESPACE, "renewed")
        return (
            found
            if found and keys.EVICTION_REQUEST not in found["metadata"]["annotations"]
            else None
        )

    kept = wait_for("the request is withdrawn", is_withdrawn)
    assert kept["metadata"]["labels"][keys.SOFT_EVICTION] == "hinted"
    world.save(kept)
    world.cluster.wait_gone(NAMESPACE, "renewed")


def test_a_request_that_is_deleted_while_no_operator_runs_stands_the_victim_down(
    world: World,
) -> None:
    world.asked("forgotten")
    world.operator.kill()
    world.controller.delete("forgotten")
    world.start_operator()
    wait_for(
        "Event",
        lambda: "SoftEvictionCancelled" in world.cluster.event_reasons(NAMESPACE, "forgotten"),
    )
    pod = world.cluster.pod(NAMESPACE, "forgotten")
    assert pod is not None
    assert "deletionTimestamp" not in pod["metadata"]


def test_an_operator_that_is_killed_is_carried_on_by_the_next(world: World) -> None:
    victim = world.asked("carried-on")
    world.wait_said("carried-on", "heartbeatTime")
    world.operator.kill()
    world.save(victim)
    world.start_operator()
    world.cluster.wait_gone(NAMESPACE, "carried-on")
    assert world.wait_said("carried-on", "completionTime")["message"] in OVER
    writes = [
        entry.what for entry in world.cluster.audit(NAMESPACE, "carried-on") if entry.status < 300
    ]
    assert (writes.count(EVICTED), writes.count("delete")) == (1, 0)
    assert len(writes) <= MOST_WRITES


def test_what_a_budget_holds_is_not_deleted(world: World) -> None:
    """A user with only the right to request an eviction gets one eviction, no more."""
    victim = world.victim("held", labels={"app": "db"})
    budget(world, at_least=1)
    world.controller.request_eviction(victim)
    world.save(world.cluster.wait_phase(NAMESPACE, "held", "hinted"))
    wait_for("Event", lambda: "WaitingForBudget" in world.cluster.event_reasons(NAMESPACE, "held"))
    kept = world.cluster.pod(NAMESPACE, "held")
    assert kept is not None
    assert "deletionTimestamp" not in kept["metadata"]
    assert "completionTime" not in world.said("held")
    budget(world, at_least=0)
    world.cluster.wait_gone(NAMESPACE, "held")
    world.wait_said("held", "completionTime")
    writes = world.cluster.audit(NAMESPACE, "held")
    assert {entry.status for entry in writes if entry.what == EVICTED} == {201, 429}
    assert "delete" not in {entry.what for entry in writes}


@pytest.fixture
def low_ceiling(world: World) -> Iterator[None]:
    world.cluster.set_policy(
        evictionResponder="true", ceiling="15s", checkpointTimeout="5s", maxDeferral="5s"
    )
    yield
    world.cluster.kubectl.read("delete", "pdb", "db", "-n", NAMESPACE)
    world.cluster.set_policy(evictionResponder="true")


@pytest.mark.usefixtures("low_ceiling")
def test_what_a_budget_holds_at_the_ceiling_is_left_to_the_next_responder(world: World) -> None:
    """The users that may be able to make room for it."""
    victim = world.victim(
        "kept", labels={"app": "db"}, annotations=POLLS | {keys.CHECKPOINT_TIMEOUT: "5s"}
    )
    budget(world, at_least=1)
    world.controller.request_eviction(victim)
    done = world.wait_said("kept", "completionTime")
    assert (
        done["message"]
        == "the pod could not be evicted yet, see its Events: left to the next responder"
    )
    kept = world.cluster.pod(NAMESPACE, "kept")
    assert kept is not None
    assert keys.SOFT_EVICTION not in kept["metadata"]["labels"]
    assert keys.EVICTION_REQUEST not in kept["metadata"]["annotations"]
    assert "deletionTimestamp" not in kept["metadata"]
    assert json.loads(kept["metadata"]["annotations"][keys.EVICTION])["outcome"] == "held-by-budget"


def test_it_is_no_preemption_so_nothing_protects_a_pod_against_it(world: World) -> None:
    protected = world.asked("protected", labels={keys.PREEMPTIBLE: "false"})
    world.save(protected)
    world.cluster.wait_gone(NAMESPACE, "protected")
    world.wait_said("protected", "completionTime")


def test_one_that_somebody_took_back_is_left_to_the_next_responder(world: World) -> None:
    world.asked("taken-back")
    world.cluster.kubectl.read(
        "label", "pod", "taken-back", "-n", NAMESPACE, f"{keys.SOFT_EVICTION}-"
    )
    done = world.wait_said("taken-back", "completionTime")
    assert done["message"] == "the soft eviction was cancelled: left to the next responder"
    world.controller.activate_next_responder("taken-back")
    states = {
        found["name"]: found["state"]
        for found in world.controller.eviction("taken-back")["status"]["targetResponders"]
    }
    assert states == {RESPONDER_NAME: "Completed", IMPERATIVE["name"]: "Active"}


def test_a_pod_that_never_agreed_is_not_asked(world: World) -> None:
    """A user who may write an Eviction may name Reprieve in it; only the pod's own spec counts."""
    pod = world.victim("stranger", annotations={})
    forged = {**pod, "spec": {**pod["spec"], "evictionResponders": [OURS]}}
    world.controller.request_eviction(forged)
    done = world.wait_said("stranger", "completionTime")
    assert done["message"] == "the pod does not name this responder: left to the next responder"
    assert keys.SOFT_EVICTION not in world.cluster.pod(NAMESPACE, "stranger")["metadata"].get(
        "labels", {}
    )


def a_group(world: World, name: str, *members: str, **metadata: Any) -> None:
    """Create a native PodGroup whose pods go together, and its pods; return once they run."""
    spec = {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}}
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": spec,
    }
    world.cluster.kubectl.read("create", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(group))
    for member in members:
        world.victim(member, spec={"schedulingGroup": {"podGroupName": name}}, **metadata)


def test_a_mark_on_one_of_a_native_group_reaches_the_others(world: World) -> None:
    """By programs that were started before there were such groups."""
    a_group(world, "together", "together-0", "together-1")
    world.cluster.mark(NAMESPACE, "together-0")
    told = [
        world.cluster.wait_phase(NAMESPACE, name, "hinted") for name in ("together-0", "together-1")
    ]
    states = [json.loads(pod["metadata"]["annotations"][keys.EVICTION]) for pod in told]
    assert [(state.get("source", "label"), state["gang"]) for state in states] == [
        ("label", "together"),
        ("gang", "together"),
    ]
    for pod in told:
        world.save(pod)
    for name in ("together-0", "together-1"):
        world.cluster.wait_gone(NAMESPACE, name)


def test_a_scheduler_gets_no_part_of_a_native_group_before_the_others_are_asked(
    world: World,
) -> None:
    a_group(world, "torn", "torn-0", "torn-1", annotations={})
    tried = (
        "delete",
        "pod",
        "torn-0",
        "-n",
        NAMESPACE,
        "--dry-run=server",
        "--as=system:kube-scheduler",
    )
    done = wait_for("the guard answers", lambda: is_refused(world.cluster.kubectl.run(*tried)))
    assert "its whole gang is marked for eviction first" in done.stderr


def is_refused(done: Done) -> Done | None:
    return done if done.status else None
