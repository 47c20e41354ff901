"""What kube-scheduler sends to `preemptVerb` and takes back: `ExtenderPreemptionArgs` and `ExtenderPreemptionResult`.

k8s.io/kube-scheduler extender/v1: the types have no JSON names, so fields are written as Go writes them. With
`nodeCacheCapable: true` victims come as uids, otherwise as whole pods; the answer is always in uids.

Of pods only uids are read. Whoever reaches the port may post any pod: what it says of itself counts for nothing beside the
one that our own watch has under this uid.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from reprieve_webhooks.admission.review import Malformed

_MAX_NODES = 20_000
"""Of one call: four times as many as Kubernetes is made for (5,000 nodes, "Considerations for large clusters")."""
_MAX_VICTIMS = _MAX_NODES
"""On one node. It has 110 pods (the kubelet's `maxPods`) or a few hundred, but a native gang that goes whole is proposed with its pods
on all nodes (kube-scheduler 1.37, `getCrossNodesVictims`): one on each is let through."""


@dataclass(frozen=True, slots=True)
class PreemptionArgs:
    """One call."""

    preemptor_uid: str
    candidates: Mapping[str, frozenset[str]]
    """By candidate node, the uids of what the scheduler would take itself."""


@dataclass(frozen=True, slots=True)
class PreemptionResult:
    """What may be taken from one node."""

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
    """Return what is asked."""
    try:
        args = _DECODER.decode(body)
    except msgspec.ValidationError as error:
        return Malformed(f"not ExtenderPreemptionArgs: {error}")
    except (msgspec.DecodeError, RecursionError) as error:
        return Malformed(f"not JSON: {error}")
    except UnicodeDecodeError:
        return Malformed("not JSON: not UTF-8")
    proposed = args.node_name_to_meta_victims or args.node_name_to_victims or {}
    wrong = _invalid_reason(args.pod.metadata.uid, proposed)
    if wrong:
        return Malformed(f"not ExtenderPreemptionArgs: {wrong}")
    return PreemptionArgs(
        args.pod.metadata.uid, {node: _uids(found) for node, found in proposed.items()}
    )


def render(answer: PreemptionResult | None) -> bytes:
    """Return the result; a node that is not in it is not preempted on."""
    return _ENCODE(_Result({} if answer is None else {answer.node: _meta_victims(answer)}))


def _invalid_reason(uid: str, proposed: _CandidateVictims) -> str:
    """Return what no scheduler would send; empty: nothing."""
    if not uid:
        return "the pod has no uid"
    if len(proposed) > _MAX_NODES:
        return f"{len(proposed)} nodes: must be at most {_MAX_NODES}"
    most = max((len(_pods_of(found)) for found in proposed.values()), default=0)
    return (
        f"{most} victims on one node: must be at most {_MAX_VICTIMS}" if most > _MAX_VICTIMS else ""
    )


def _pods_of(victims: _PodVictims | _MetaVictims | None) -> Sequence[_Pod | _MetaPod]:
    return (victims and victims.pods) or ()


def _uids(victims: _PodVictims | _MetaVictims | None) -> frozenset[str]:
    return frozenset(
        pod.uid if isinstance(pod, _MetaPod) else pod.metadata.uid for pod in _pods_of(victims)
    )


def _meta_victims(answer: PreemptionResult) -> _MetaVictims:
    return _MetaVictims([_MetaPod(uid) for uid in answer.victim_uids], answer.violations)
