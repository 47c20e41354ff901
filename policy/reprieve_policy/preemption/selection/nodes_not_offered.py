"""Nodes that a scheduler has not offered, where victims may be better or waiting is enough.

A scheduler offers a sample of the nodes, without those that it believes to be of no use.
"""

from collections.abc import Collection, Iterable

from . import select_victims
from .eligibility import Eligibility
from .node_dry_run import NodeDryRun
from .node_status import DryRunStatus
from .reasons import RefusalReason
from .snapshot import NodeInfo, Preemptor
from .victim_units import Selection


def nominated_with_room(
    dry_run: NodeDryRun, preemptor: Preemptor, offered: Collection[str]
) -> str | None:
    """Return the node that the preemptor is nominated to, if that has room and is not offered.

    If that was reported to its scheduler, and it still waits, the scheduler knows of a limit that
    is not evaluated here. Without this, such a preemptor would take victims on one node after the
    other, and run on none.
    """
    nominated = preemptor.nominated_node
    if nominated is None or nominated in offered:
        return None
    return nominated if dry_run.result_for(nominated) is DryRunStatus.HAS_ROOM else None


def with_victims_or_room_to_come(
    nodes: Iterable[str], dry_run: NodeDryRun, eligibility: Eligibility
) -> dict[str, Selection | DryRunStatus]:
    """Return those of the nodes with victims or with room to come.

    Not those with room: the scheduler, which looks for room on all nodes, has just placed a pod
    there.
    """
    node_infos = eligibility.snapshot.nodes
    # A pod on another node of a rack or zone may keep the preemptor away from all of it.
    repelling = select_victims.repelling_domains(eligibility)
    found = {
        node: dry_run.candidate_on(node)
        for node in nodes
        if not select_victims.repelling_pods(node_infos[node], eligibility)
        and not any(node_infos[node].labels.get(key) in values for key, values in repelling.items())
    }
    return {
        node: result
        for node, result in found.items()
        if isinstance(result, Selection)
        or (
            result is DryRunStatus.ROOM_BEING_RELEASED
            and _may_be_offered(node_infos[node], eligibility)
        )
    }


def being_released_for_gang(
    dry_run: NodeDryRun, eligibility: Eligibility, seen: Collection[str]
) -> dict[str, DryRunStatus]:
    """Return other nodes where waiting is enough for a gang member.

    A scheduler names only some of many nodes. Without this, a gang's second pod would take other
    victims if the scheduler does not name the node whose pods leave for the first.
    """
    if eligibility.preemptor.gang is None or eligibility.preemptor.depends_on_other_pods:
        return {}
    node_infos = eligibility.snapshot.nodes.values()
    releasing = (
        node_info.name
        for node_info in node_infos
        if node_info.name not in seen and any(one.is_leaving for one in node_info.pods)
    )
    return {
        node: result
        for node in releasing
        if (result := dry_run.result_for(node)) is DryRunStatus.ROOM_BEING_RELEASED
    }


def _may_be_offered(node_info: NodeInfo, eligibility: Eligibility) -> bool:
    """True where a pod leaves that a scheduler may preempt by priority.

    Without this, a preemptor would wait for pods of higher priorities too, and any pod could take
    their room first: no scheduler offers such a node, so the preemptor is not nominated to it.
    """
    return any(
        pod.is_leaving and eligibility.reason(pod) is RefusalReason.ALREADY_LEAVING
        for pod in node_info.pods
    )
