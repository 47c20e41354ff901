"""What kube-scheduler sends to `preemptVerb` and takes back: `ExtenderPreemptionArgs` and `ExtenderPreemptionResult`.

k8s.io/kube-scheduler extender/v1: the types have no JSON names, so fields are written as Go writes them. With
`nodeCacheCapable: true` victims come as uids, otherwise as whole pods; the answer is always in uids.

Of pods only uids are read. Whoever reaches the port may post any pod: what it says of itself counts for nothing beside the
one that our own watch has under this uid.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from reprieve_webhooks.review import Malformed


@dataclass(frozen=True, slots=True)
class Asked:
    """One call."""

    preemptor_uid: str
    proposed: Mapping[str, frozenset[str]]
    """By candidate node, the uids of what the scheduler would take itself."""


@dataclass(frozen=True, slots=True)
class Answer:
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


class _Victims(msgspec.Struct, gc=False, rename="pascal"):
    pods: list[_Pod] | None = None


class _MetaPod(msgspec.Struct, gc=False):
    uid: str = msgspec.field(default="", name="UID")


class _MetaVictims(msgspec.Struct, gc=False, rename="pascal"):
    pods: list[_MetaPod] | None = None
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class _Args(msgspec.Struct, rename="pascal"):
    pod: _Pod
    node_name_to_victims: dict[str, _Victims | None] | None = None
    node_name_to_meta_victims: dict[str, _MetaVictims | None] | None = None


class _Result(msgspec.Struct, rename="pascal"):
    node_name_to_meta_victims: dict[str, _MetaVictims]


_DECODER = msgspec.json.Decoder(_Args)
_ENCODE = msgspec.json.Encoder().encode


def parse(body: bytes) -> Asked | Malformed:
    """Return what is asked."""
    try:
        args = _DECODER.decode(body)
    except msgspec.ValidationError as error:
        return Malformed(f"not ExtenderPreemptionArgs: {error}")
    except (msgspec.DecodeError, RecursionError) as error:
        return Malformed(f"not JSON: {error}")
    except UnicodeDecodeError:
        return Malformed("not JSON: not UTF-8")
    if not args.pod.metadata.uid:
        return Malformed("not ExtenderPreemptionArgs: the pod has no uid")
    return Asked(args.pod.metadata.uid, _proposed(args))


def render(answer: Answer | None) -> bytes:
    """Return the result; a node that is not in it is not preempted on."""
    return _ENCODE(_Result({} if answer is None else {answer.node: _meta_victims(answer)}))


def _proposed(args: _Args) -> dict[str, frozenset[str]]:
    if args.node_name_to_meta_victims:
        known = args.node_name_to_meta_victims
        return {node: frozenset(pod.uid for pod in (found and found.pods) or ()) for node, found in known.items()}
    whole = args.node_name_to_victims or {}
    return {node: frozenset(pod.metadata.uid for pod in (found and found.pods) or ()) for node, found in whole.items()}


def _meta_victims(answer: Answer) -> _MetaVictims:
    return _MetaVictims([_MetaPod(uid) for uid in answer.victim_uids], answer.violations)
