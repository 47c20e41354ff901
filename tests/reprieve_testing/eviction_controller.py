"""A stand-in for Kubernetes' evictionrequest-controller; 1.37 serves its types without a
controller.

When a test calls it, it does what the types' documentation has the controller do: one Eviction of
an EvictionRequest, labelled with its participants; responders by priority, one active at a time.
The API server checks each of its writes, as it would those of the real controller.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from realcluster.kubectl import Kubectl

API_VERSION = "lifecycle.k8s.io/v1alpha1"
REQUESTER = "acme.io/drainer"
IMPERATIVE = {"name": "imperative-eviction.k8s.io/evictor", "priority": 100}
_EVICTIONS, _REQUESTS = "evictions.lifecycle.k8s.io", "evictionrequests.lifecycle.k8s.io"

Json = Any


@dataclass(frozen=True)
class FakeEvictionController:
    """The controller of one namespace."""

    kubectl: Kubectl
    namespace: str

    def request_eviction(self, pod: Json) -> str:
        """Request a pod's eviction, and activate the first responder; return the Eviction's
        name.
        """
        name, uid = str(pod["metadata"]["name"]), pod["metadata"]["uid"]
        target = {"pod": {"name": name, "uid": uid}}
        self._create(
            "EvictionRequest",
            name,
            {},
            {"target": target, "requester": REQUESTER, "intent": "Eviction"},
        )
        responders = [*pod["spec"].get("evictionResponders", ()), IMPERATIVE]
        responders.sort(key=lambda responder: -responder["priority"])
        roles = {
            REQUESTER: "requester",
            **{responder["name"]: "responder" for responder in responders},
        }
        self._create("Eviction", name, roles, {"target": target})
        targets = [{**responder, "state": "Inactive"} for responder in responders]
        targets[0]["state"] = "Active"
        statuses = [{"name": responder["name"]} for responder in responders]
        statuses[0]["startTime"] = _now()
        waiting = [
            _condition(kind, "False", "AwaitingEviction") for kind in ("Failed", "TargetEvicted")
        ]
        requesters = [{"name": REQUESTER, "intent": "Eviction"}]
        self._write(
            name,
            targetResponders=targets,
            responders=statuses,
            requesters=requesters,
            conditions=waiting,
            observedGeneration=1,
        )
        return name

    def withdraw(self, name: str) -> None:
        """Let the requester withdraw, and cancel the Eviction."""
        intent = json.dumps({"spec": {"intent": "Withdrawn"}})
        self.kubectl.read(
            "patch", _REQUESTS, name, "-n", self.namespace, "--type=merge", "-p", intent
        )
        self._end(name, "Canceled", "Failed", "CanceledDueToNoRequesters", intent="Withdrawn")

    def complete(self, name: str) -> None:
        """Record that the pod is gone, after the responder's own report."""
        self._end(name, "Completed", "TargetEvicted", "PodDeleted")

    def activate_next_responder(self, name: str) -> None:
        """Activate the next responder, after the active one has reported that it is done."""
        status = self.eviction(name)["status"]
        targets = status["targetResponders"]
        active = _active(targets)
        targets[active]["state"], targets[active + 1]["state"] = "Completed", "Active"
        responders = status["responders"]
        responders[active + 1]["startTime"] = _now()
        self._write(name, targetResponders=targets, responders=responders)

    def delete(self, name: str) -> None:
        """Delete the EvictionRequest and the Eviction, as when no requester needs them any more."""
        for kind in (_REQUESTS, _EVICTIONS):
            self.kubectl.read("delete", kind, name, "-n", self.namespace)

    def eviction(self, name: str) -> Json:
        """Return the Eviction."""
        return self.kubectl.get(_EVICTIONS, name, "-n", self.namespace)

    def responder_status(self, name: str, responder: str) -> Json:
        """Return the status that a responder has reported."""
        (found,) = [
            found
            for found in self.eviction(name)["status"]["responders"]
            if found["name"] == responder
        ]
        return found

    def _end(self, name: str, state: str, kind: str, reason: str, intent: str = "Eviction") -> None:
        status = self.eviction(name)["status"]
        targets = status["targetResponders"]
        targets[_active(targets)]["state"] = state
        conditions = [found for found in status["conditions"] if found["type"] != kind]
        requesters = [{"name": REQUESTER, "intent": intent}]
        ended = [*conditions, _condition(kind, "True", reason)]
        self._write(name, targetResponders=targets, requesters=requesters, conditions=ended)

    def _create(self, kind: str, name: str, labels: dict[str, str], spec: Json) -> None:
        metadata = {"name": name, "namespace": self.namespace, "labels": labels}
        document = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
        self.kubectl.read("create", "-f", "-", stdin=json.dumps(document))

    def _write(self, name: str, **status: Json) -> None:
        patch = json.dumps({"status": status})
        words = (
            "patch",
            _EVICTIONS,
            name,
            "-n",
            self.namespace,
            "--subresource=status",
            "--type=merge",
            "-p",
            patch,
        )
        self.kubectl.read(*words)


def _active(targets: Json) -> int:
    (found,) = [index for index, target in enumerate(targets) if target["state"] == "Active"]
    return found


def _condition(kind: str, status: str, reason: str) -> Json:
    condition = {"type": kind, "status": status, "reason": reason, "message": "set by a stand-in"}
    return {**condition, "lastTransitionTime": _now()}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
