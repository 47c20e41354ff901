"""A victim's life on a real API server: what the operator writes, in which order, and what it never
does.
"""

import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from reprieve_operator.cluster.pods import VersionedObject
from reprieve_runtime.client.api import MERGE_PATCH, VERSION_ONLY, WITHOUT_OBJECT
from reprieve_runtime.client.paths import object_path
from reprieve_testing.cluster.connection import connected
from reprieve_testing.cluster.handle import ClusterHandle, Program, wait_for
from reprieve_testing.servers import grpc_example
from reprieve_testing.servers.workload import HINT, Workload

pytestmark = pytest.mark.cluster

HTTP = {"reprieve.dev/checkpoint-hint": HINT, "reprieve.dev/checkpoint-timeout": "60s"}
SHORT = HTTP | {"reprieve.dev/checkpoint-timeout": "6s"}
"""For tests that wait for its end: longer than their earlier checks take on a busy machine."""
KOORDINATOR = "scheduling.koordinator.sh/soft-eviction"
PREEMPTOR = "reprieve.dev/preemptor"
COMPRESSES_FROM = 37
"""The minor version of Kubernetes with compressed watches."""


def condition(pod: Any, kind: str) -> Any:
    return next(
        (found for found in pod["status"].get("conditions", []) if found["type"] == kind), None
    )


def state(pod: Any) -> Any:
    return json.loads(pod["metadata"]["annotations"]["reprieve.dev/eviction"])


def address(pod: Any) -> str:
    return str(pod["status"]["podIP"])


@pytest.mark.usefixtures("operator")
def test_hint_acknowledgement_condition_and_delete_come_in_this_order(
    cluster: ClusterHandle, namespace: str
) -> None:
    pod = cluster.create_pod(namespace, "order", annotations=HTTP, finalizers=["example.com/other"])
    with Workload(address(pod)) as workload:
        cluster.mark(namespace, "order")
        cluster.wait_phase(namespace, "order", "checkpointing")
        assert condition(cluster.pod(namespace, "order"), "DisruptionTarget") is None
        workload.state = {"state": "saved", "step": 120, "path": "/data/120"}
        ended = cluster.wait_phase(namespace, "order", "terminating")
        wait_for(
            "DELETE",
            lambda: (cluster.pod(namespace, "order") or {})["metadata"].get("deletionTimestamp"),
        )
    assert condition(ended, "DisruptionTarget")["status"] == "True"
    assert condition(ended, "DisruptionTarget")["reason"] == "PreemptionByReprieve"
    assert state(ended)["checkpoint"]["step"] == 120
    saved_at = ended["metadata"]["annotations"]["reprieve.dev/last-checkpoint-at"]
    assert saved_at == state(ended)["checkpoint"]["at"]
    assert len(workload.posts) == 1
    writes = cluster.writes_until_end(namespace, "order")
    assert writes == ["patch", "patch", "patch status", "delete"]
    told = [
        "CheckpointRequested",
        "CheckpointAcknowledged",
        "CheckpointSaved",
        "SoftEvictionDeleting",
    ]
    wait_for("Events", lambda: cluster.event_reasons(namespace, "order")[:4] == told)


async def test_the_api_server_compresses_the_watch_and_answers_writes_with_a_small_table(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "small", annotations=HTTP)
    encodings: list[bool] = []
    async with connected(cluster.cluster.kubeconfig) as api:
        events = api.list_and_watch(
            object_path("pods", namespace), VersionedObject, on_open=encodings.append
        )
        async with aclosing(events):
            first, last = await anext(events), await anext(events)
        minor = json.loads(await api.request("GET", "/version"))["minor"]
        answer = await api.request(
            "PATCH",
            object_path("pods", namespace, "small"),
            params=WITHOUT_OBJECT,
            body={"metadata": {"labels": {"size": "small"}}},
            content_type=MERGE_PATCH,
            accept=VERSION_ONLY,
        )
    assert (first.type, last.ends_list) == ("ADDED", True)
    assert encodings == [int(minor) >= COMPRESSES_FROM]
    table = json.loads(answer)
    assert (table["kind"], table["rows"][0]["object"]) == ("Table", None)
    written = cluster.pod(namespace, "small")
    assert written is not None
    assert table["metadata"]["resourceVersion"] == written["metadata"]["resourceVersion"]
    assert written["metadata"]["labels"] == {"size": "small"}


@pytest.mark.usefixtures("operator")
def test_a_pod_without_a_checkpoint_is_deleted_at_once_with_its_grace_period(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "plain", grace_seconds=7, finalizers=["example.com/other"])
    cluster.mark(namespace, "plain")
    ended = wait_for("DELETE", lambda: _deleted(cluster, namespace, "plain"))
    assert state(ended)["outcome"] == "skipped"
    assert ended["metadata"]["deletionGracePeriodSeconds"] == 7
    assert cluster.writes_until_end(namespace, "plain") == ["patch status", "delete"]


def test_a_victim_that_never_answers_is_deleted_at_the_deadline_and_counted_as_failed(
    cluster: ClusterHandle, operator: Program, namespace: str
) -> None:
    pod = cluster.create_pod(namespace, "mute", annotations=SHORT, finalizers=["example.com/other"])
    with Workload(address(pod), on_post=None, state=None) as workload:
        cluster.mark(namespace, "mute")
        ended = wait_for("DELETE", lambda: _deleted(cluster, namespace, "mute"))
    assert state(ended)["outcome"] == "unresponsive"
    assert len(workload.posts) == 1
    failed = (
        "reprieve_preemption_failed_checkpoint_total"
        f'{{namespace="{namespace}",reason="unresponsive"}}'
    )
    assert operator.metric(failed) == 1
    wait_for("Event", lambda: "CheckpointUnanswered" in cluster.event_reasons(namespace, "mute"))


@pytest.mark.usefixtures("operator")
def test_a_victim_that_answers_but_is_slow_is_extended_exactly_once(
    cluster: ClusterHandle, namespace: str
) -> None:
    pod = cluster.create_pod(namespace, "slow", annotations=SHORT, finalizers=["example.com/other"])
    with Workload(address(pod)):
        cluster.mark(namespace, "slow")
        cluster.wait_phase(namespace, "slow", "extended")
        ended = wait_for("DELETE", lambda: _deleted(cluster, namespace, "slow"))
    assert state(ended)["outcome"] == "timed-out"
    assert cluster.event_reasons(namespace, "slow").count("CheckpointExtended") == 1
    # Begin, acknowledgement, extension, status, DELETE.
    assert len(cluster.writes_until_end(namespace, "slow")) == 5


DEFERS = {
    "state": "defer",
    "deferSeconds": 6,
    "progress": 0.25,
    "message": "in the middle of a step",
}


@pytest.mark.usefixtures("operator")
def test_a_workload_may_request_more_time_and_then_save(
    cluster: ClusterHandle, namespace: str
) -> None:
    pod = cluster.create_pod(namespace, "later", annotations=HTTP, finalizers=["example.com/other"])
    with Workload(address(pod), on_post=DEFERS) as workload:
        cluster.mark(namespace, "later")
        cluster.wait_phase(namespace, "later", "deferred")
        workload.state = {"state": "saved", "path": "/data/late"}
        ended = wait_for("DELETE", lambda: _deleted(cluster, namespace, "later"))
    assert state(ended)["outcome"] == "saved"
    (note,) = wait_for("Event", lambda: _notes(cluster, namespace, "CheckpointDeferred"))
    assert note.endswith('; it says 25%, "in the middle of a step"')


@pytest.mark.usefixtures("operator")
def test_the_annotation_carrier_needs_no_network(cluster: ClusterHandle, namespace: str) -> None:
    wanted = {
        "reprieve.dev/checkpoint-hint": "annotation:",
        "reprieve.dev/checkpoint-answer": '{"state":"saved"}',
    }
    cluster.create_pod(namespace, "reader", annotations=wanted, finalizers=["example.com/other"])
    cluster.mark(namespace, "reader")
    hinted = cluster.wait_phase(namespace, "reader", "hinted")
    annotations = hinted["metadata"]["annotations"]
    assert "reprieve.dev/checkpoint-answer" not in annotations, (
        "an answer from before the request is none to it"
    )
    request = json.loads(annotations["reprieve.dev/checkpoint-request"])
    answer = json.dumps({"state": "saved", "id": request["id"], "path": "/data/7"})
    cluster.annotate(namespace, "reader", f"reprieve.dev/checkpoint-answer={answer}")
    ended = wait_for("DELETE", lambda: _deleted(cluster, namespace, "reader"))
    assert state(ended)["checkpoint"]["path"] == "/data/7"


NOT_ITS_OWN = {
    "the address of the cloud's metadata service": (
        "169.254.169.254",
        "the pod's address is not a unicast address of its own",
    ),
    "the node's address": ("10.99.0.1", "the pod's address is its node's"),
}


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    ("address", "why"),
    [
        pytest.param(
            *NOT_ITS_OWN["the address of the cloud's metadata service"], marks=pytest.mark.slow
        ),
        NOT_ITS_OWN["the node's address"],
    ],
    ids=NOT_ITS_OWN,
)
def test_a_victim_with_an_address_that_is_not_its_own_is_never_called_and_ends_at_its_deadline(
    cluster: ClusterHandle, namespace: str, address: str, why: str
) -> None:
    cluster.create_pod(namespace, "odd", annotations=SHORT, finalizers=["example.com/other"])
    host = "10.99.0.1"
    addresses = {
        "podIP": address,
        "podIPs": [{"ip": address}],
        "hostIP": host,
        "hostIPs": [{"ip": host}],
    }
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": addresses}))
    cluster.kubectl.read("patch", "pod", "odd", "-n", namespace, *patch)
    cluster.mark(namespace, "odd")
    hinted = cluster.wait_phase(namespace, "odd", "hinted")
    assert (
        json.loads(hinted["metadata"]["annotations"]["reprieve.dev/checkpoint-request"])["attempt"]
        == 1
    )
    ended = wait_for("DELETE", lambda: _deleted(cluster, namespace, "odd"))
    assert ended["status"]["podIP"] == address
    assert state(ended)["outcome"] == "unresponsive"
    sentence = f"{why}, so the hint is in annotation reprieve.dev/checkpoint-request instead"
    assert wait_for("Event", lambda: _notes(cluster, namespace, "CheckpointHintByAnnotation")) == [
        sentence
    ]


@pytest.mark.usefixtures("operator")
def test_removing_the_label_cancels_the_eviction_and_leaves_no_mark(
    cluster: ClusterHandle, namespace: str
) -> None:
    pod = cluster.create_pod(namespace, "spared", annotations=SHORT)
    with Workload(address(pod)) as workload:
        cluster.annotate(namespace, "spared", f"{PREEMPTOR}=uid-of-high")
        cluster.mark(namespace, "spared")
        cluster.wait_phase(namespace, "spared", "checkpointing")
        cluster.kubectl.read(
            "label", "pod", "spared", "-n", namespace, "reprieve.dev/soft-eviction-"
        )
        spared = wait_for("cancelled", lambda: _in_state(cluster, namespace, "spared", "cancelled"))
        cancellations = wait_for(
            "word of it",
            lambda: [request for request in workload.requests if request.method == "DELETE"],
        )
        assert [request.document["id"] for request in cancellations] == [workload.eviction_id]
    assert "reprieve.dev/soft-eviction" not in spared["metadata"].get("labels", {})
    assert PREEMPTOR not in spared["metadata"]["annotations"]
    assert "deletionTimestamp" not in spared["metadata"]
    wait_for("Event", lambda: "SoftEvictionCancelled" in cluster.event_reasons(namespace, "spared"))
    cluster.mark(namespace, "spared")
    cluster.wait_gone(namespace, "spared")


@pytest.mark.usefixtures("operator")
def test_koordinators_annotation_is_found_by_the_resync_and_its_removal_cancels(
    cluster: ClusterHandle, namespace: str
) -> None:
    pod = cluster.create_pod(namespace, "koord", annotations=HTTP)
    with Workload(address(pod)):
        mark = (
            '{"timestamp":"2026-11-21T10:00:00Z",'
            '"initiator":"koord-descheduler","reason":"node is hot"}'
        )
        cluster.annotate(namespace, "koord", f"{KOORDINATOR}={mark}")
        hinted = cluster.wait_phase(namespace, "koord", "checkpointing")
        assert state(hinted)["initiator"] == "koord-descheduler"
        cluster.annotate(namespace, "koord", f"{KOORDINATOR}-")
        spared = wait_for("cancelled", lambda: _in_state(cluster, namespace, "koord", "cancelled"))
    assert "reprieve.dev/soft-eviction" not in spared["metadata"].get("labels", {})


@pytest.mark.usefixtures("operator")
def test_an_unreadable_mark_evicts_no_pod_and_is_reported_once(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "odd", annotations={KOORDINATOR: "{soon"})
    cluster.create_pod(namespace, "witness")
    cluster.annotate(namespace, "witness", f"{KOORDINATOR}=true")
    wait_for("Event", lambda: "SoftEvictionUnreadable" in cluster.event_reasons(namespace, "odd"))
    cluster.wait_gone(namespace, "witness")
    cluster.create_pod(namespace, "witness-2")
    cluster.annotate(namespace, "witness-2", f"{KOORDINATOR}=true")
    cluster.wait_gone(namespace, "witness-2")
    assert cluster.event_reasons(namespace, "odd") == ["SoftEvictionUnreadable"]
    pod = cluster.pod(namespace, "odd")
    assert pod is not None
    assert "deletionTimestamp" not in pod["metadata"]


LEFT_OVER: dict[str, dict[str, Any]] = {
    "a phase without a state": {"labels": {"reprieve.dev/soft-eviction": "saved"}},
    "a phase whose state cannot be read": {
        "labels": {"reprieve.dev/soft-eviction": "hinted"},
        "annotations": {"reprieve.dev/eviction": "{"},
    },
    "Reprieve's label after its mark was removed": {
        "labels": {"reprieve.dev/soft-eviction": "marked"},
        "annotations": {PREEMPTOR: "uid-of-high"},
    },
}


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("metadata", LEFT_OVER.values(), ids=LEFT_OVER)
def test_a_leftover_label_evicts_no_pod_and_is_removed(
    cluster: ClusterHandle, namespace: str, metadata: dict[str, Any]
) -> None:
    cluster.create_pod(namespace, "left", **metadata)
    wait_for("Event", lambda: "SoftEvictionLeftOver" in cluster.event_reasons(namespace, "left"))
    left = cluster.pod(namespace, "left")
    assert left is not None
    assert "deletionTimestamp" not in left["metadata"]
    assert "reprieve.dev/soft-eviction" not in left["metadata"].get("labels", {})
    assert not {"reprieve.dev/eviction", PREEMPTOR} & left["metadata"].get("annotations", {}).keys()
    assert [entry.what for entry in cluster.audit(namespace, "left")] == ["patch"]
    cluster.mark(namespace, "left")
    cluster.wait_gone(namespace, "left")


@pytest.mark.usefixtures("operator")
def test_a_foreign_finalizer_holds_the_victim_until_it_is_removed(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "held", finalizers=["example.com/other"])
    cluster.mark(namespace, "held")
    wait_for("Event", lambda: "WaitingForFinalizers" in cluster.event_reasons(namespace, "held"))
    assert cluster.pod(namespace, "held") is not None
    cluster.kubectl.read(
        "patch",
        "pod",
        "held",
        "-n",
        namespace,
        "--type=merge",
        "-p",
        '{"metadata":{"finalizers":null}}',
    )
    cluster.wait_gone(namespace, "held")
    assert [entry.what for entry in cluster.audit(namespace, "held")].count("delete") == 1
    wait_for("Event", lambda: "SoftEvictionCompleted" in cluster.event_reasons(namespace, "held"))


@pytest.mark.usefixtures("operator")
def test_a_job_keeps_the_eviction_count_and_the_checkpoint_for_its_next_pod(
    cluster: ClusterHandle, namespace: str
) -> None:
    template = {
        "metadata": {"annotations": HTTP},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]},
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {"template": template},
    }
    cluster.kubectl.apply(job)
    pod = wait_for("the Job's pod", lambda: _running_pod_of(cluster, namespace, "train"))
    name = pod["metadata"]["name"]
    with Workload(address(pod), on_post={"state": "saved", "step": 9, "path": "/data/9"}):
        cluster.mark(namespace, name)
        cluster.wait_gone(namespace, name)
    owner = cluster.kubectl.get("job", "train", "-n", namespace)
    assert owner["metadata"]["labels"]["reprieve.dev/ledger"] == "true"
    entry = json.loads(owner["metadata"]["annotations"]["reprieve.dev/ledger"])["slots"][""]
    assert entry["count"] == 1
    assert entry["saved"]["path"] == "/data/9"
    assert (
        owner["metadata"]["annotations"]["reprieve.dev/last-checkpoint-at"] == entry["saved"]["at"]
    )


def _notes(cluster: ClusterHandle, namespace: str, reason: str) -> list[str]:
    events = cluster.kubectl.get("events.v1.events.k8s.io", "-n", namespace)["items"]
    return [event["note"] for event in events if event["reason"] == reason]


def _deleted(cluster: ClusterHandle, namespace: str, name: str) -> Any:
    pod = cluster.pod(namespace, name)
    return pod if pod and pod["metadata"].get("deletionTimestamp") else None


def _in_state(cluster: ClusterHandle, namespace: str, name: str, phase: str) -> Any:
    pod = cluster.pod(namespace, name)
    annotations = pod["metadata"].get("annotations", {}) if pod else {}
    return (
        pod
        if json.loads(annotations.get("reprieve.dev/eviction", "{}")).get("phase") == phase
        else None
    )


def _running_pod_of(cluster: ClusterHandle, namespace: str, job: str) -> Any:
    pods = cluster.kubectl.get("pods", "-n", namespace, "-l", f"job-name={job}")["items"]
    return next((pod for pod in pods if pod["status"].get("podIP")), None)


@pytest.mark.usefixtures("operator")
def test_a_grpc_workload_is_notified_and_saves(
    cluster: ClusterHandle, namespace: str, tmp_path: Path
) -> None:
    annotations = {"reprieve.dev/checkpoint-hint": "grpc://:9000"}
    pod = cluster.create_pod(
        namespace, "grpc", annotations=annotations, finalizers=["example.com/other"]
    )
    with grpc_example.training(tmp_path, address(pod), 9000):
        cluster.mark(namespace, "grpc")
        ended = wait_for("DELETE", lambda: _deleted(cluster, namespace, "grpc"))
    assert state(ended)["outcome"] == "saved"
    assert state(ended)["checkpoint"]["path"] == str(tmp_path / "training-0.json")
