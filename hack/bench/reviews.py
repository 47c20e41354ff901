"""The AdmissionReviews that every server gets: pods of training jobs, of a chosen size.

As a real pod, they grow by environment variables and managed fields: encoders and decoders meet
many small values and escaped keys, not one long string.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from reprieve_policy.keys import CHECKPOINT, CHECKPOINT_HINT, CHECKPOINT_TIMEOUT, PREEMPTION_CLASS

NAMESPACE = "team-a"
PRIORITY_CLASS = "training"
PRIORITY = 1000
COUNT = 16  # reviews of one size; the last one must be refused
HIGHEST_ALLOWED = 6  # in a Namespace without a policy, every server admits up to this class
REFUSED_CLASS = "11"
BAD_REQUEST = 400

_TIME = "2026-01-02T15:04:05Z"
_OWNER_UID = "3c1a0f5e-0f3b-4d2a-9b55-6a2f3e9d7c10"


@dataclass(frozen=True)
class Review:
    """One review and its correct answer."""

    body: bytes
    uid: str
    allowed: bool
    code: int  # of the refusal; 0 where it is allowed

    def line(self) -> bytes:
        """Return the line of the load generator's file."""
        expected = json.dumps({"uid": self.uid, "allowed": self.allowed, "code": self.code})[1:]
        return b'{"body":' + self.body + b"," + expected.encode() + b"\n"


def build(size: int) -> tuple[Review, ...]:
    """Return the reviews of one size [B].

    Classes 0 to 6 in turn, and a last one that must be refused.
    """
    classes = [str(number % (HIGHEST_ALLOWED + 1)) for number in range(COUNT - 1)]
    admitted = [
        Review(build_body(size, n, text), _uid(n), allowed=True, code=0)
        for n, text in enumerate(classes)
    ]
    last = COUNT - 1
    refused = Review(
        build_body(size, last, REFUSED_CLASS), _uid(last), allowed=False, code=BAD_REQUEST
    )
    return (*admitted, refused)


def build_body(size: int, number: int, preemption_class: str) -> bytes:
    """Return a review of exactly `size` bytes.

    Raise `ValueError` if even the smallest pod is larger.
    """
    smallest = len(_encode(number, preemption_class, 1, 0))
    step = len(_encode(number, preemption_class, 2, 0)) - smallest
    if size < smallest:
        raise ValueError(
            f"a review of a pod has at least {smallest} bytes, and {size} were asked for"
        )
    more, padding = divmod(size - smallest, step)
    return _encode(number, preemption_class, 1 + more, padding)


def smallest_size(preemption_class: str) -> int:
    """Return the size of the smallest review [B]."""
    return len(_encode(0, preemption_class, 1, 0))


def _encode(number: int, preemption_class: str, variables: int, padding: int) -> bytes:
    return json.dumps(
        _review(number, preemption_class, variables, padding), separators=(",", ":")
    ).encode()


def _review(number: int, preemption_class: str, variables: int, padding: int) -> dict[str, Any]:
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    # Not Kubernetes' own user: pods that its controllers make from a template only get warnings.
    controller = f"system:serviceaccount:{NAMESPACE}:training-operator"
    groups = [
        "system:serviceaccounts",
        f"system:serviceaccounts:{NAMESPACE}",
        "system:authenticated",
    ]
    request = {
        "uid": _uid(number),
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": f"train-{number:02}-x7k2p",
        "namespace": NAMESPACE,
        "operation": "CREATE",
        "userInfo": {"username": controller, "uid": _OWNER_UID, "groups": groups},
        "object": _pod(number, preemption_class, variables, padding),
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def _pod(number: int, preemption_class: str, variables: int, padding: int) -> dict[str, Any]:
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": f"train-{number:02}",
        "uid": _OWNER_UID,
    }
    metadata = {
        "name": f"train-{number:02}-x7k2p",
        "generateName": f"train-{number:02}-",
        "namespace": NAMESPACE,
        "uid": _uid(number + COUNT),
        "creationTimestamp": _TIME,
        "labels": {
            "app": "train",
            PREEMPTION_CLASS: preemption_class,
            "job-name": f"train-{number:02}",
        },
        "annotations": {
            CHECKPOINT: "auto",
            CHECKPOINT_HINT: "http://:8080/checkpoint",
            CHECKPOINT_TIMEOUT: "10m",
        },
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        "managedFields": [_managed_fields(variables)],
    }
    status = {"phase": "Pending", "qosClass": "Burstable"}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": _spec(variables, padding),
        "status": status,
    }


def _spec(variables: int, padding: int) -> dict[str, Any]:
    environment = [
        {"name": f"TRAINING_OPTION_{n:04}", "value": f"/data/shard-{n:04}"}
        for n in range(variables)
    ]
    token = {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    ca = {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    volume = {
        "name": "kube-api-access-q8z4d",
        "projected": {"sources": [token, ca], "defaultMode": 420},
    }
    mount = {
        "name": volume["name"],
        "readOnly": True,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }
    container = {
        "name": "trainer",
        "image": "registry.example/team-a/trainer:v1",
        "args": ["--resume", "x" * padding],
        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "env": environment,
        "resources": {
            "limits": {"cpu": "4", "memory": "16Gi"},
            "requests": {"cpu": "2", "memory": "8Gi"},
        },
        "volumeMounts": [mount],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    tolerated = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    return {
        "volumes": [volume],
        "containers": [container],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in tolerated
        ],
        "priorityClassName": PRIORITY_CLASS,
        "priority": PRIORITY,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _managed_fields(variables: int) -> dict[str, Any]:
    """Return the API server's managed fields: an entry for each variable, its key JSON in JSON."""
    entry: dict[str, Any] = {".": {}, "f:name": {}, "f:value": {}}
    environment = {f'k:{{"name":"TRAINING_OPTION_{n:04}"}}': entry for n in range(variables)}
    container = {
        "f:args": {},
        "f:env": {".": {}, **environment},
        "f:image": {},
        "f:name": {},
        "f:resources": {},
    }
    metadata: dict[str, Any] = {"f:generateName": {}, "f:labels": {}, "f:ownerReferences": {}}
    fields = {
        "f:metadata": metadata,
        "f:spec": {"f:containers": {'k:{"name":"trainer"}': container}},
    }
    manager = {
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": "v1",
        "time": _TIME,
    }
    return {**manager, "fieldsType": "FieldsV1", "fieldsV1": fields}


def _uid(number: int) -> str:
    return str(uuid.UUID(int=0xD1CE << 112 | number, version=4))
