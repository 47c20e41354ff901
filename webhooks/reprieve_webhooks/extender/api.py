"""The messages of `preemptVerb`: `ExtenderPreemptionArgs` and `ExtenderPreemptionResult`.

k8s.io/kube-scheduler extender/v1: the types have no JSON names, so fields have their Go names.
With `nodeCacheCapable: true` victims come as uids, otherwise as whole pods; the result is always in
uids.

Of pods only uids are read. Any client that reaches the port can post any pod: only the pod that the
webhooks' own watch has under this uid counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from reprieve_webhooks.admission import large_review
from reprieve_webhooks.admission.review import Malformed, decode

_MAX_NODES = 20_000
"""Nodes of one call: four times the size that Kubernetes supports (5,000 nodes, "Considerations for
large clusters")."""
_MAX_VICTIMS = _MAX_NODES
"""Victims on one node. A node has 110 pods (the kubelet's `maxPods`) or a few hundred, but a native
gang that is evicted as a unit is proposed with its pods on all nodes (kube-scheduler 1.37,
`getCrossNodesVictims`): one pod on each node is accepted."""

MAX_VALUES = 2_000_000
"""In one call: three times the uids of all pods of 5,000 full nodes, or as many as the whole pods
of 15,000 victims have. Of `{},` as victims, a call of 48 MiB would take a gigabyte of memory, and
keep reviews waiting for seconds."""


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
    uid: str = ""


class _Pod(msgspec.Struct, gc=False):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _PodVictims(msgspec.Struct, gc=False, rename="pascal"):
    pods: list[_Pod] | None = None


class _MetaPod(msgspec.Struct, gc=False):
    uid: str = msgspec.field(default="", name="UID")


class _MetaVictims(msgspec.Struct, gc=False, rename="pascal"):
    pods: list[_MetaPod] | None = None
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class _Args(msgspec.Struct, rename="pascal"):
    pod: _Pod
    node_name_to_victims: dict[str, _PodVictims | None] | None = None
    node_name_to_meta_victims: dict[str, _MetaVictims | None] | None = None


class _Result(msgspec.Struct, rename="pascal"):
    node_name_to_meta_victims: dict[str, _MetaVictims]


_CandidateVictims = Mapping[str, _PodVictims | None] | Mapping[str, _MetaVictims | None]
_DECODER = msgspec.json.Decoder(_Args)
_ENCODE = msgspec.json.Encoder().encode


def parse(body: bytes) -> PreemptionArgs | Malformed:
    """Decode the arguments of a call."""
    if large_review.count_values(body, MAX_VALUES) > MAX_VALUES:
        return Malformed(f"not ExtenderPreemptionArgs: more than {MAX_VALUES} values")
    args = decode(_DECODER, body, "ExtenderPreemptionArgs")
    if isinstance(args, Malformed):
        return args
    proposed = args.node_name_to_meta_victims or args.node_name_to_victims or {}
    invalid = _invalid_reason(args.pod.metadata.uid, proposed)
    if invalid:
        return Malformed(f"not ExtenderPreemptionArgs: {invalid}")
    return PreemptionArgs(
        args.pod.metadata.uid, {node: _uids(victims) for node, victims in proposed.items()}
    )


def render(result: PreemptionResult | None) -> bytes:
    """Encode the result; the scheduler does not preempt on a node that is not in it."""
    return _ENCODE(_Result({} if result is None else {result.node: _meta_victims(result)}))


def _invalid_reason(uid: str, proposed: _CandidateVictims) -> str:
    """Return why no scheduler would send this; empty if one would."""
    if not uid:
        return "the pod has no uid"
    if len(proposed) > _MAX_NODES:
        return f"{len(proposed)} nodes: must be at most {_MAX_NODES}"
    most = max((len(_pods_of(victims)) for victims in proposed.values()), default=0)
    return (
        f"{most} victims on one node: must be at most {_MAX_VICTIMS}" if most > _MAX_VICTIMS else ""
    )


def _pods_of(victims: _PodVictims | _MetaVictims | None) -> Sequence[_Pod | _MetaPod]:
    return (victims and victims.pods) or ()


def _uids(victims: _PodVictims | _MetaVictims | None) -> frozenset[str]:
    return frozenset(
        pod.uid if isinstance(pod, _MetaPod) else pod.metadata.uid for pod in _pods_of(victims)
    )


def _meta_victims(result: PreemptionResult) -> _MetaVictims:
    return _MetaVictims([_MetaPod(uid) for uid in result.victim_uids], result.violations)
