"""The Kubernetes objects of a trace. No I/O.

They declare everything that any contender may read. The stock scheduler reads none of Reprieve's
keys; its jobs carry them too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from reprieve_policy import keys
from reprieve_policy.kube.values import timestamp

from .trace import GRACE_SECONDS, TIERS, Checkpoints, Job, Tier

Document = dict[str, Any]

NAMESPACE = "bench-preemption"
HINT_PATH = "/checkpoint"
JOB_NAME = "batch.kubernetes.io/job-name"
JOB_INDEX = "batch.kubernetes.io/job-completion-index"
_SIGKILL_DELAY = "pod-delete.stage.kwok.x-k8s.io/delay"
_SIGKILL_MARGIN_SECONDS = 1
_SIGTERM_HINT = "sigterm:"
_BACKOFF_LIMIT = 1000
_LOWEST = min(tier.priority for tier in TIERS)

_TIER = "bench.reprieve/tier"
_NO_EVICTION = 1_000_000
"""Pods that must be available: more than there are. A Job has no scale, so that `maxUnavailable`
is not possible."""
POLICY = {
    "checkpointTimeout": "10s",
    "maxDeferral": "5s",
    "gracePeriodCap": f"{GRACE_SECONDS}s",
    "ceiling": "30s",
    "nearCompletion": "5s",
    "patience": "2s",
}
"""Reprieve's defaults, with seconds for minutes."""


def priority_class_name(tier: Tier) -> str:
    """Return the name of a tier's PriorityClass."""
    return f"bench-{tier.name}"


def before_the_jobs() -> list[Document]:
    """Return the namespace and the PriorityClasses."""
    metadata = {"name": NAMESPACE, "annotations": {keys.ALLOWED_PREEMPTION_CLASSES: "0-9"}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    return [namespace, *(_priority_class(tier) for tier in TIERS)]


def budgets() -> list[Document]:
    """Return a PodDisruptionBudget that allows no eviction of pods that are protected for a time.

    kube-scheduler prefers other victims to those of such a budget, and takes these where it finds
    no others.
    """
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": tier.name, "namespace": NAMESPACE},
            "spec": {
                "minAvailable": _NO_EVICTION,
                "selector": {"matchLabels": {_TIER: tier.name}},
            },
        }
        for tier in TIERS
        if tier.toleration_seconds
    ]


def rights(user: str, resources: Sequence[str]) -> list[Document]:
    """Return the objects that let a user read resources, each `GROUP/RESOURCE`.

    None for no resources.
    """
    if not resources:
        return []
    api_group = "rbac.authorization.k8s.io"
    metadata = {"name": NAMESPACE}
    pairs = [resource.split("/") for resource in resources]
    rules = [
        {"apiGroups": [group], "resources": [name], "verbs": ["get", "list", "watch"]}
        for group, name in pairs
    ]
    role = {
        "apiVersion": f"{api_group}/v1",
        "kind": "ClusterRole",
        "metadata": metadata,
        "rules": rules,
    }
    binding = {
        "apiVersion": f"{api_group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": api_group, "kind": "ClusterRole", "name": NAMESPACE},
        "subjects": [{"apiGroup": api_group, "kind": "User", "name": user}],
    }
    return [role, binding]


def _priority_class(tier: Tier) -> Document:
    tolerates: dict[str, str] = {}
    if tier.minimum_preemptable_priority is not None:
        tolerates = {
            keys.TOLERATION_PREFIX + keys.MINIMUM_PREEMPTABLE_PRIORITY: str(
                tier.minimum_preemptable_priority
            ),
            keys.TOLERATION_PREFIX + keys.TOLERATION_SECONDS: str(tier.toleration_seconds),
        }
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": priority_class_name(tier), "annotations": tolerates},
        "value": tier.priority,
        # No pod has a lower priority than these. Without this, a scheduler looks for victims on all
        # nodes whenever it tries one of them.
        "preemptionPolicy": "Never" if tier.priority == _LOWEST else "PreemptLowerPriority",
    }


def job(of: Job, port: int) -> Document:
    """Return a Job; pods that take hints declare that port."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": of.name, "namespace": NAMESPACE},
        "spec": {
            "completions": of.pods,
            "parallelism": of.pods,
            "completionMode": "Indexed",
            "backoffLimit": _BACKOFF_LIMIT,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "Ignore",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                    }
                ]
            },
            "template": _template(of, port),
        },
    }


def _template(of: Job, port: int) -> Document:
    container: Document = {
        "name": "main",
        "image": "registry.example/team/trainer:v1",
        "ports": [{"containerPort": port}],
        "resources": {"requests": {"cpu": str(of.cpus)}},
    }
    return {
        "metadata": {
            "labels": {keys.PREEMPTION_CLASS: str(of.preemption_class), _TIER: of.tier.name},
            "annotations": {
                _SIGKILL_DELAY: f"{_sigkill_delay_seconds(of)}s",
                **_says_of_checkpoints(of, port),
            },
        },
        "spec": {
            "priorityClassName": priority_class_name(of.tier),
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "automountServiceAccountToken": False,
            "containers": [container],
        },
    }


def _sigkill_delay_seconds(of: Job) -> int:
    """Return when kwok ends a pod that is being deleted [s].

    It knows no grace period of a DELETE, so the replay process ends pods. kwok ends those that the
    process forgot, after the longest grace period that the pod can get.
    """
    longest = GRACE_SECONDS
    if of.checkpoints is not None and _hint(of.checkpoints, 0) == _SIGTERM_HINT:
        longest = max(longest, math.ceil(of.checkpoints.save_seconds))
    return longest + _SIGKILL_MARGIN_SECONDS


def _says_of_checkpoints(of: Job, port: int) -> dict[str, str]:
    hint = None if of.checkpoints is None else _hint(of.checkpoints, port)
    if of.checkpoints is None or hint is None:
        return {keys.CHECKPOINT: "none"}
    return {
        keys.CHECKPOINT: "auto",
        keys.CHECKPOINT_HINT: hint,
        keys.ESTIMATED_CHECKPOINT_TIME: f"{math.ceil(of.checkpoints.save_seconds)}s",
    }


def _hint(checkpoints: Checkpoints, port: int) -> str | None:
    if checkpoints.takes_hints:
        return f"http://:{port}{HINT_PATH}"
    return _SIGTERM_HINT if checkpoints.on_sigterm else None


def saved(uid: str, at: datetime) -> Document:
    """Return the patch with which a workload publishes when it saved.

    `uid` is a precondition, as below.
    """
    return {
        "metadata": {"uid": uid, "annotations": {keys.LAST_CHECKPOINT_AT: timestamp.render(at)}}
    }


def ended(uid: str, now: str, *, exit_code: int) -> Document:
    """Return the patch of a pod's status that ends its container.

    `uid` is a precondition: another pod of the same name is not patched.
    """
    terminated = {
        "exitCode": exit_code,
        "reason": "Error" if exit_code else "Completed",
        "finishedAt": now,
    }
    status = {
        "name": "main",
        "image": "",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "started": False,
    }
    reason = "PodFailed" if exit_code else "PodCompleted"
    not_ready = {"status": "False", "reason": reason, "lastTransitionTime": now}
    return {
        "metadata": {"uid": uid},
        "status": {
            "phase": "Failed" if exit_code else "Succeeded",
            "conditions": [{"type": kind, **not_ready} for kind in ("Ready", "ContainersReady")],
            "containerStatuses": [{**status, "state": {"terminated": terminated}}],
        },
    }
