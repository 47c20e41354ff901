"""The messages of `preemptVerb`: `ExtenderPreemptionArgs` and `ExtenderPreemptionResult`.

k8s.io/kube-scheduler extender/v1: the types have no JSON names, so fields have their Go names.
With `nodeCacheCapable: true` victims come as uids, otherwise as whole pods; the result is always in
uids.

Of pods only uids are read. Any client that reaches the port can post any pod: only the pod that the
webhooks' own watch has under this uid counts.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from reprieve_runtime import deep
from reprieve_webhooks.admission import large_review
from reprieve_webhooks.admission.review import Malformed, Uid, decode

_MAX_NODES = 20_000
"""Nodes of one call: four times the size that Kubernetes supports (5,000 nodes, "Considerations for
large clusters")."""
_MAX_VICTIMS = _MAX_NODES
"""Victims on one node. A node has 110 pods (the kubelet's `maxPods`) or a few hundred, but a native
gang that is evicted as a unit is proposed with its pods on all nodes (kube-scheduler 1.37,
`getCrossNodesVictims`): one pod on each node is accepted."""

MAX_VALUES = 1_400_000
"""In one call: twice the uids of all pods of 5,000 full nodes, or as many as the whole pods of
11,000 victims have. Of `{},` as victims, a call of 48 MiB would take a gigabyte of memory, and keep
reviews waiting for seconds."""
_MAX_MARKS = 3 * MAX_VALUES
"""Brackets and commas of one call: a value has a comma and two brackets at most."""
_MAX_FIELDS = 1000
"""Of the call and of its pod."""
_MAX_NODE_NAME = 253
"""Characters: a name is a DNS subdomain."""


@dataclass(frozen=True, slots=True)
class PreemptionArgs:
    """The arguments of one call."""

    preemptor_uid: str
    candidates: Mapping[str, frozenset[str]]
    """By candidate node, the uids of the victims that the scheduler proposes."""


@dataclass(frozen=True, slots=True)
class PreemptionResult:
    """The victims of one node."""

    node: str
    victim_uids: tuple[str, ...]
    """The most important first."""
    violations: int
    """Of PodDisruptionBudgets."""


class _Meta(msgspec.Struct, gc=False):
    uid: Uid = ""


class _Pod(msgspec.Struct, gc=False):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _PodVictims(msgspec.Struct, gc=False, rename="pascal"):
    pods: list[_Pod] | None = None


class _MetaPod(msgspec.Struct, gc=False):
    uid: Uid = msgspec.field(default="", name="UID")


class _MetaVictims(msgspec.Struct, gc=False, rename="pascal"):
    pods: list[_MetaPod] | None = None
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class _Args(msgspec.Struct, rename="pascal"):
    pod: _Pod
    node_name_to_victims: dict[str, msgspec.Raw] | None = None
    node_name_to_meta_victims: dict[str, msgspec.Raw] | None = None


class _Result(msgspec.Struct, rename="pascal"):
    node_name_to_meta_victims: dict[str, _MetaVictims]


_DECODER = msgspec.json.Decoder(_Args)
_VictimsField = tuple[msgspec.json.Decoder[Any], str]
_WHOLE: _VictimsField = msgspec.json.Decoder(_PodVictims | None), "NodeNameToVictims"
_UIDS: _VictimsField = msgspec.json.Decoder(_MetaVictims | None), "NodeNameToMetaVictims"
_ENCODE = msgspec.json.Encoder().encode
_TO_BRACKET_OR_COMMA, _DEPTH_OF_NODES = deep.up_to(b"[]{},"), 2


def parse(body: bytes) -> PreemptionArgs | Malformed:
    """Decode the arguments of a call."""
    values = large_review.count_values(body, MAX_VALUES)
    if values > MAX_VALUES:
        return Malformed(f"not ExtenderPreemptionArgs: more than {MAX_VALUES} values")
    # Of half as many, the nodes take 100 MiB.
    if values and (excess := _excess(body)):
        return Malformed(f"not ExtenderPreemptionArgs: more than {excess}")
    args = decode(_DECODER, body, "ExtenderPreemptionArgs")
    if isinstance(args, Malformed):
        return args
    is_whole = not args.node_name_to_meta_victims
    proposed = (args.node_name_to_victims if is_whole else args.node_name_to_meta_victims) or {}
    invalid = _invalid_reason(args.pod.metadata.uid, proposed)
    if invalid:
        return Malformed(f"not ExtenderPreemptionArgs: {invalid}")
    candidates: dict[str, frozenset[str]] = {}
    for node, raw in proposed.items():
        victims = _victims_of(raw, is_whole=is_whole)
        if isinstance(victims, Malformed):
            return victims
        candidates[node] = victims
    return PreemptionArgs(args.pod.metadata.uid, candidates)


def render(result: PreemptionResult | None) -> bytes:
    """Encode the result; the scheduler does not preempt on a node that is not in it."""
    return _ENCODE(_Result({} if result is None else {result.node: _meta_victims(result)}))


def _excess(body: bytes) -> str:
    """Return of what the call has too much, by its brackets and commas; empty if of nothing.

    The fields of the objects in the call's own object are nodes, but for some of the pod's.
    """
    depth = fields = 0
    for number, found in enumerate(_TO_BRACKET_OR_COMMA.finditer(body)):
        if found[1] == b",":
            fields += depth == _DEPTH_OF_NODES
        else:
            depth += 1 if found[1] in (b"[", b"{") else -1
        if fields > _MAX_NODES + _MAX_FIELDS:
            return f"{_MAX_NODES} nodes"
        if number == _MAX_MARKS:
            return f"{_MAX_MARKS} brackets and commas"
    return ""


def _invalid_reason(uid: str, nodes: Collection[str]) -> str:
    """Return why no scheduler would send this; empty if one would."""
    if not uid:
        return "the pod has no uid"
    if len(nodes) > _MAX_NODES:
        return f"{len(nodes)} nodes: must be at most {_MAX_NODES}"
    if max(map(len, nodes), default=0) > _MAX_NODE_NAME:
        return f"the name of a node has more than {_MAX_NODE_NAME} characters"
    return ""


def _victims_of(raw: msgspec.Raw, *, is_whole: bool) -> frozenset[str] | Malformed:
    """Return the uids of the victims on one node.

    Node by node: what is decoded in one call holds up all reviews.
    """
    decoder, field = _WHOLE if is_whole else _UIDS
    victims = decode(decoder, bytes(raw), f"ExtenderPreemptionArgs: {field}")
    if isinstance(victims, Malformed):
        return victims
    pods: Sequence[_Pod | _MetaPod] = (victims and victims.pods) or ()
    if len(pods) > _MAX_VICTIMS:
        detail = f"{len(pods)} victims on one node: must be at most {_MAX_VICTIMS}"
        return Malformed(f"not ExtenderPreemptionArgs: {detail}")
    return frozenset(pod.uid if isinstance(pod, _MetaPod) else pod.metadata.uid for pod in pods)


def _meta_victims(result: PreemptionResult) -> _MetaVictims:
    return _MetaVictims([_MetaPod(uid) for uid in result.victim_uids], result.violations)
