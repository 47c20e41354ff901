"""Which bare pods are created again, and with what content."""

import copy
import json
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle import bare_pod
from reprieve_policy.lifecycle.eviction import Checkpoint
from reprieve_policy.lifecycle.ledger import LedgerEntry
from reprieve_testing.objects.builders import NOW, after

Json = dict[str, Any]
SETTINGS = PolicySettings()
ENTRY = LedgerEntry(
    preempted_count=3,
    first_submitted_at=NOW,
    eviction_ids=("e",),
    checkpoint=Checkpoint(saved_at=after(60), path="/ckpt/7"),
)
TOKEN = {
    "name": "kube-api-access-t46gg",
    "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]},
}
TOKEN_MOUNT = {
    "name": "kube-api-access-t46gg",
    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
}
ADDED_TOLERATIONS = [
    {
        "key": f"node.kubernetes.io/{key}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for key in ("not-ready", "unreachable")
]


def a_pod(**spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": "team", "uid": "victim"},
        "spec": {"containers": [{"name": "main", "image": "train"}], **spec},
    }


def described(pod: Json, **metadata: Any) -> Json:
    return {**pod, "metadata": {**pod["metadata"], **metadata}}


def replacement_of(pod: Json) -> Json:
    before = copy.deepcopy(pod)
    made = bare_pod.build_replacement(pod, ENTRY, SETTINGS)
    assert pod == before, "what is stored is built, not cut out of what was read"
    json.dumps(made)
    return made


RECREATABLE = {
    "a pod that a user created": (a_pod(), True),
    "null labels, annotations and owners": (
        described(a_pod(), labels=None, annotations=None, ownerReferences=None),
        True,
    ),
    "a pod with a controller": (
        described(a_pod(), ownerReferences=[{"kind": "Job"}]),
        False,
    ),
    "a pod with an owner that is not a controller": (
        described(a_pod(), ownerReferences=[{"kind": "ConfigMap"}]),
        False,
    ),
    "the mirror of a static pod": (
        described(a_pod(), annotations={"kubernetes.io/config.mirror": "x"}),
        False,
    ),
    "a debugger": (
        described(a_pod(), labels={"app.kubernetes.io/managed-by": "kubectl-debug"}),
        False,
    ),
    "a pod managed by Helm": (
        described(a_pod(), labels={"app.kubernetes.io/managed-by": "Helm"}),
        True,
    ),
    "an interactive session": (
        a_pod(containers=[{"name": "sh", "stdin": True, "stdinOnce": True, "tty": True}]),
        False,
    ),
    "a container with stdin that stays open": (
        a_pod(containers=[{"name": "sh", "stdin": True}]),
        True,
    ),
}


@pytest.mark.parametrize(("pod", "want"), RECREATABLE.values(), ids=RECREATABLE)
def test_which_pods_are_recreated(pod: Json, *, want: bool) -> None:
    assert bare_pod.is_recreatable(pod) is want


def test_a_replacement_has_the_same_name_and_the_victims_history() -> None:
    assert replacement_of(a_pod())["metadata"] == {
        "name": "train",
        "namespace": "team",
        "labels": {},
        "annotations": {
            keys.PREEMPTED_COUNT: "3",
            keys.FIRST_SUBMITTED_AT: "2026-11-21T12:00:00Z",
            keys.RESUME_FROM_CHECKPOINT: "/ckpt/7",
            keys.LAST_CHECKPOINT_AT: "2026-11-21T12:01:00Z",
            keys.REQUEUED_FROM: "victim",
        },
    }


def test_the_authors_fields_stay_and_added_fields_are_dropped() -> None:
    labels = {"app": "train", keys.SOFT_EVICTION: "terminating", keys.GANG_GATE_LABEL: "waiting"}
    annotations = {
        "mine": "kept",
        keys.CHECKPOINT_HINT: "annotation:",
        keys.EVICTION: "{}",
        keys.CHECKPOINT_REQUEST: "{}",
        keys.CHECKPOINT_ANSWER: "{}",
        keys.KOORDINATOR_SOFT_EVICTION: "{}",
        keys.PREEMPTED_COUNT: "2",
        keys.REQUEUED_FROM: "an-earlier-one",
        keys.MIN_MEMBER: "3",
    }
    life = {
        "resourceVersion": "7",
        "generateName": "train-",
        "finalizers": ["x"],
        "managedFields": [{}],
    }
    metadata = replacement_of(described(a_pod(), labels=labels, annotations=annotations, **life))[
        "metadata"
    ]
    assert set(metadata) == {"name", "namespace", "labels", "annotations"}
    assert metadata["labels"] == {"app": "train"}
    told = metadata["annotations"]
    assert {key: told[key] for key in told if key in annotations} == {
        "mine": "kept",
        keys.CHECKPOINT_HINT: "annotation:",
        keys.PREEMPTED_COUNT: "3",
        keys.REQUEUED_FROM: "victim",
    }


SPECS: dict[str, tuple[Json, Json]] = {
    "fields that the cluster sets are dropped": (
        {
            "nodeName": "n",
            "priority": 7,
            "preemptionPolicy": "Never",
            "overhead": {},
            "priorityClassName": "low",
        },
        {"priorityClassName": "low"},
    ),
    "the ServiceAccount is named once": (
        {"serviceAccount": "robot", "serviceAccountName": "robot"},
        {"serviceAccountName": "robot"},
    ),
    "debug containers are dropped": ({"ephemeralContainers": [{"name": "debugger"}]}, {}),
    "a token of the pod that is gone is of no use": ({"volumes": [TOKEN]}, {}),
    "the author's volumes stay": (
        {"volumes": [{"name": "data", "emptyDir": {}}, TOKEN]},
        {"volumes": [{"name": "data", "emptyDir": {}}]},
    ),
    "a volume of such a name that holds something else is its own": (
        {"volumes": [{"name": "kube-api-access-t46gg", "emptyDir": {}}]},
        {"volumes": [{"name": "kube-api-access-t46gg", "emptyDir": {}}]},
    ),
    "tolerations that every pod gets are dropped": ({"tolerations": ADDED_TOLERATIONS}, {}),
    "the author's tolerations stay": (
        {"tolerations": [{"operator": "Exists"}, *ADDED_TOLERATIONS]},
        {"tolerations": [{"operator": "Exists"}]},
    ),
    "the gang gate is dropped: the webhooks add it": (
        {"schedulingGates": [{"name": keys.GANG_GATE}, {"name": "example.com/hold"}]},
        {"schedulingGates": [{"name": "example.com/hold"}]},
    ),
    "unknown fields stay": ({"aFieldOfTomorrow": [1]}, {"aFieldOfTomorrow": [1]}),
    "null lists are dropped": (
        {"volumes": None, "tolerations": None, "initContainers": None},
        {},
    ),
}


@pytest.mark.parametrize(("spec", "want"), SPECS.values(), ids=SPECS)
def test_specs(spec: Json, want: Json) -> None:
    made = replacement_of(a_pod(**spec))["spec"]
    assert made == {"containers": [{"name": "main", "image": "train"}], **want}


def test_mounts_of_the_token_are_dropped_in_every_container() -> None:
    own = {"name": "data", "mountPath": "/data"}
    containers = [
        {"name": "main", "volumeMounts": [own, TOKEN_MOUNT]},
        {"name": "other", "volumeMounts": [TOKEN_MOUNT]},
    ]
    made = replacement_of(a_pod(volumes=[TOKEN], containers=containers, initContainers=containers))[
        "spec"
    ]
    assert made["containers"] == [{"name": "main", "volumeMounts": [own]}, {"name": "other"}]
    assert made["initContainers"] == made["containers"]


def test_variables_are_added_on_request_and_existing_ones_stay() -> None:
    own = {"name": "REPRIEVE_LAST_CHECKPOINT_AT", "value": "never"}
    pod = described(
        a_pod(containers=[{"name": "main", "env": [own]}]), annotations={keys.REQUEUE_ENV: "true"}
    )
    once = replacement_of(pod)
    names = [found["name"] for found in once["spec"]["containers"][0]["env"]]
    assert names == [
        "REPRIEVE_LAST_CHECKPOINT_AT",
        "REPRIEVE_PREEMPTED_COUNT",
        "REPRIEVE_FIRST_SUBMITTED_AT",
        "REPRIEVE_RESUME_FROM_CHECKPOINT",
    ]
    again = replacement_of(described(once, uid="the-next"))
    assert again["spec"] == once["spec"]
