"""Rules read a text in time that grows with its length, not with the square of its length.

A review is decided in the event loop, where no other is answered meanwhile.
"""

import itertools
from typing import Any

import msgspec
import pytest

from reprieve_policy import keys
from reprieve_policy.admission.defaults import decide_defaults
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.config.toleration import annotation_keys
from reprieve_policy.facts import Facts
from reprieve_policy.kube.kinds import KINDS
from reprieve_policy.kube.objects import Resource

LETTERS = 300_000
UNITS = (
    *" ;,./:-=0aE[\"'\\",
    "\t",
    "1h",
    "0.",
    "a.",
    "a,",
    "a=b,",
    "0-1,",
    "/a",
    "../",
    "{{",
    '{"a":',
    '[{"',
    "exit 0 ",
    "trap 'exit 0 ",
    "reprieve.dev/",
)
"""What a text repeats."""
BEGINNINGS = (
    "",
    "http://",
    "file://",
    "file:///",
    "exec://",
    "signal://USR1?container=",
    "trap 'exit 0",
)
KEYS = sorted(
    {
        value
        for name, value in vars(keys).items()
        if name.isupper() and isinstance(value, str) and "/" in value.strip("/")
    }
    | set(annotation_keys(keys.TOLERATION_PREFIX))
)


def a_spec(text: str) -> dict[str, Any]:
    container = {
        "name": text,
        "command": [text],
        "args": [text],
        "env": [{"name": text}],
        "ports": [{"name": text, "protocol": text}],
        "volumeMounts": [{"name": text, "mountPath": text, "subPath": text}],
        "resources": {"requests": {text: text, "cpu": text}, "limits": {text: text}},
    }
    requirement = {"key": text, "operator": "In", "values": [text]}
    terms = [{"matchExpressions": [requirement]}]
    return {
        "priorityClassName": text,
        "preemptionPolicy": text,
        "nodeName": text,
        "nodeSelector": {text: text},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
        },
        "tolerations": [{"key": text, "operator": "Equal", "value": text}],
        "containers": [container],
        "initContainers": [container],
        "schedulingGates": [{"name": text}],
        "overhead": {"cpu": text},
        "min": {text: text, "cpu": text},
        "max": {text: text, "cpu": text},
    }


def an_object(kind: str, text: str) -> dict[str, Any]:
    """Return an object of this kind with the text in each field that rules read."""
    metadata = {
        "name": text,
        "labels": {text: text, **dict.fromkeys(KEYS, text)},
        "annotations": {text: text, **dict.fromkeys(KEYS, text)},
        "ownerReferences": [
            {"apiVersion": text, "kind": text, "name": text, "uid": text, "controller": True}
        ],
    }
    template = {"metadata": metadata, "spec": a_spec(text)}
    job = {"metadata": metadata, "spec": {"template": template}}
    spec = a_spec(text) | {"template": template, "jobTemplate": job}
    return {
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
        "data": dict.fromkeys(("a", text), text),
    }


@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_text_is_read_once(kind: str, beginning: str) -> None:
    for unit, ending in itertools.product(UNITS, ("", "!")):
        written = an_object(kind, beginning + unit * (LETTERS // len(unit)) + ending)
        decide(written)
        # Some rules are for pods that get notice.
        written["metadata"]["annotations"][keys.CHECKPOINT_HINT] = "annotation:"
        decide(written)


def decide(written: dict[str, Any]) -> None:
    resource = msgspec.convert(written, Resource)
    decide_defaults(resource, None, Facts())
    decide_admission(resource, None, Facts())
