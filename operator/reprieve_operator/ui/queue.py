"""The view of the queue: what waits to come back, for room, or for victims to leave. No I/O."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from reprieve_operator.replacements.bare_pods import PendingReplacement
from reprieve_operator.replacements.job_resumer import SuspendedJob
from reprieve_operator.victims.registry import CurrentVictim
from reprieve_policy.lifecycle.victim_set import VictimSetKey
from reprieve_runtime.client.reflector import Key

from .gangs import GangRow, count_of, is_ready, latest_deadline, names_in


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """What waits, and for what."""

    kind: str
    """`preemptor`, `gang`, `pod` or `Job`."""
    namespace: str
    name: str
    waits_for: str
    node: str = ""
    """Where room is held for it."""
    until: datetime | None = None
    is_problem: bool = False


def queue_rows(
    *,
    victims: Iterable[CurrentVictim],
    sets: Mapping[str, VictimSetKey],
    preemptors: Mapping[str, Key],
    gangs: Iterable[GangRow],
    replacements: Iterable[PendingReplacement],
    suspended: Iterable[SuspendedJob],
) -> list[QueueRow]:
    """Return what waits: preemptors, gangs in their turn, pods to be created again, Jobs.

    `sets` has the set of each victim that names its preemptor, by uid; `preemptors` has the names
    of those that are nominated.
    """
    known = {victim.ref.uid: victim for victim in victims}
    return [
        *_preemptors(known, sets, preemptors),
        *(_gang(gang) for gang in gangs if gang.phase == "waiting for room"),
        *(_replacement(each, known) for each in sorted(replacements, key=_place_of)),
        *(_job(each) for each in sorted(suspended, key=lambda each: each.until)),
    ]


def _preemptors(
    victims: Mapping[str, CurrentVictim],
    sets: Mapping[str, VictimSetKey],
    names: Mapping[str, Key],
) -> Iterator[QueueRow]:
    """Yield the preemptors: the room of their victims is held for them until the last is ready."""
    members: dict[VictimSetKey, list[CurrentVictim]] = defaultdict(list)
    for uid, key in sets.items():
        if uid in victims:
            members[key].append(victims[uid])
    for key, found in sorted(members.items()):
        namespace, name = names.get(key.preemptor_uid, ("", key.preemptor_uid))
        awaited = [each for each in found if not is_ready(each)]
        all_of_them = count_of(len(found), "victim")
        listed = names_in(sorted(each.ref.key for each in awaited))
        yield QueueRow(
            kind="preemptor",
            namespace=namespace or "",
            name=name,
            waits_for=(
                f"{len(awaited)} of {all_of_them} to be ready: {listed}"
                if awaited
                else f"{all_of_them} to go"
            ),
            node=key.node,
            until=latest_deadline(awaited),
            is_problem=any(each.is_stuck for each in found),
        )


def _gang(gang: GangRow) -> QueueRow:
    return QueueRow(
        kind="gang",
        namespace=gang.namespace,
        name=gang.name,
        waits_for=gang.waits_for,
        until=gang.until,
    )


def _replacement(replacement: PendingReplacement, victims: Mapping[str, CurrentVictim]) -> QueueRow:
    is_refused = replacement.retry_at is not None
    if replacement.victim_uid in victims:
        waits_for = "the victim of its name to go"
    elif is_refused:
        waits_for = "its next try: the API server refused it"
    else:
        waits_for = "its name to be free"
    return QueueRow(
        kind="pod",
        namespace=replacement.namespace,
        name=replacement.name,
        waits_for=waits_for,
        until=replacement.retry_at,
        is_problem=is_refused,
    )


def _job(job: SuspendedJob) -> QueueRow:
    return QueueRow(
        kind="Job",
        namespace=job.namespace,
        name=job.name,
        waits_for="the end of its back-off: it is suspended",
        until=job.until,
    )


def _place_of(replacement: PendingReplacement) -> tuple[str, str]:
    return replacement.namespace, replacement.name
