"""`reprieve explain`: how a pod would be preempted.

It reads the cluster and decides with the same functions as the webhooks and the operator.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import click

from reprieve_cli.cluster import victims
from reprieve_cli.cluster.cluster import ClusterReader
from reprieve_cli.cluster.connection import EXIT_FAILED, ClusterTarget, cluster_options, run
from reprieve_cli.cluster.named_pods import NotFound, find_pods
from reprieve_cli.cluster.node_pods import list_active_pods
from reprieve_cli.cluster.pods import PodContext, progress_of
from reprieve_cli.cluster.victim_table import build_current, build_eviction
from reprieve_cli.names import PodSubjectType
from reprieve_cli.output.explanation import build_document, build_text
from reprieve_cli.output.terminal import echo, to_json
from reprieve_cli.simulation.preemptor_refusal import PreemptorRefusals
from reprieve_policy import keys
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import membership
from reprieve_policy.kube.limits.quota import Quotas
from reprieve_policy.kube.nodes import Node
from reprieve_policy.kube.objects import labels_of
from reprieve_policy.kube.pods import Pod, has_ended
from reprieve_policy.preemption.eviction_preview import PreviewedPod, preview
from reprieve_policy.preemption.selection import Refusal, snapshot_builder
from reprieve_policy.preemption.selection.explain import VictimExplanation, explain_victim
from reprieve_policy.preemption.selection.snapshot import GangKey, ScheduledPod, Snapshot
from reprieve_runtime.client.api import Api, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path


@click.command(short_help="Show how a pod would be preempted, and at what cost.")
@click.argument("subject", type=PodSubjectType(), metavar="POD | KIND/NAME")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@cluster_options()
def command(target: ClusterTarget, *, subject: str, output: str) -> None:
    """Show which pods may preempt a pod, from when, at what cost, and the steps of the eviction.

    KIND/NAME is pod/NAME, or each pod that job/NAME, statefulset/NAME (sts), replicaset/NAME (rs)
    or deployment/NAME (deploy) controls. For a victim, shows the state of its eviction instead of
    what could preempt it; for a pending pod, also why it takes no victims, such as its
    ElasticQuota. With -o json, prints one object a line.

    It shows what the policy says. A scheduler that does not call Reprieve chooses victims by
    priority alone.
    """
    if target.namespace is None:
        raise click.UsageError("-A cannot be used: a pod is in one namespace")
    run(
        target,
        partial(
            _explain,
            namespace=target.namespace,
            subject=subject,
            is_json=output == "json",
        ),
    )


async def _explain(api: Api, *, namespace: str, subject: str, is_json: bool) -> int:
    try:
        found = await find_pods(api, namespace, [subject], None)
    except NotFound as error:
        echo(f"reprieve: {error}", err=True)
        return EXIT_FAILED
    pods = [pod for pod in found if not has_ended(pod)]
    if not pods:
        state = "has already ended" if found else "has no pods"
        echo(f"reprieve: {subject}: {state}", err=True)
        return EXIT_FAILED
    reader = ClusterReader(api, namespace, _report_unreadable)
    context, now = PodContext(api, _report_unreadable), datetime.now(UTC)
    policy = await reader.read_policy()
    facts = policy.facts_in_force(namespace, Quotas())
    refusals = PreemptorRefusals(api, policy, now, _report_unreadable)
    gangs = _GangReader(api, context, facts, now)
    for number, pod in enumerate(pods):
        if number and not is_json:
            echo()
        refusal = await refusals.find(pod)
        await _explain_pod(gangs, context, pod, facts, now, refusal, is_json=is_json)
    return 0


class _GangReader:
    """Finds the other pods of a gang; lists the pods of the namespace once, if one is in a gang.

    Without this, a gang of 200 pods would be listed and decoded 200 times. Jobs and PodGroups are
    read for the members of the gang only: a namespace may have thousands of others.
    """

    def __init__(self, api: Api, context: PodContext, facts: Facts, now: datetime) -> None:
        self._api = api
        self._context = context
        self._facts = facts
        self._now = now
        self._pods: Mapping[GangKey, Sequence[Pod]] | None = None
        self._members: dict[GangKey, Sequence[ScheduledPod]] = {}

    async def read_others(self, own: ScheduledPod) -> Sequence[ScheduledPod]:
        """Return the other pods of its gang that occupy a node."""
        if own.gang is None:
            return ()
        if self._pods is None:
            self._pods = await self._read_pods(own.namespace)
        if own.gang not in self._members:
            self._members[own.gang] = [
                await _scheduled_pod(self._context, pod, self._facts, self._now)
                for pod in self._pods.get(own.gang, ())
            ]
        return [each for each in self._members[own.gang] if each.uid != own.uid]

    async def _read_pods(self, namespace: str) -> Mapping[GangKey, Sequence[Pod]]:
        pods = defaultdict[GangKey, list[Pod]](list)
        async for pod in list_active_pods(self._api, namespace, {}):
            if pod.occupies_node:
                # A gang does not depend on its pods' Jobs.
                alone = snapshot_builder.scheduled_pod_of(pod, self._facts, now=self._now)
                if alone.gang is not None:
                    pods[alone.gang].append(pod)
        return pods


async def _explain_pod(
    gangs: _GangReader,
    context: PodContext,
    pod: Pod,
    facts: Facts,
    now: datetime,
    refusal: Refusal | None,
    *,
    is_json: bool,
) -> None:
    eviction = preview(await _previewed_pod(context, pod, now), facts, now)
    explanation = await _explain_victim(gangs, context, pod, facts, now)
    victim = victims.read(PartialObjectMetadata(metadata=pod.metadata))
    is_victim = keys.SOFT_EVICTION in labels_of(pod.metadata) and not victim.is_finished
    if is_json:
        document = {"pod": victim.name, **build_document(explanation, eviction, refusal)}
        if is_victim:
            document["eviction"] = build_eviction(victim)
        echo(to_json(document))
        return
    current = build_current(victim, now) if is_victim else ()
    title = f"pod/{victim.name} in namespace {victim.namespace}"
    for line in build_text(title, explanation, eviction, current, refusal):
        echo(line)


async def _previewed_pod(context: PodContext, pod: Pod, now: datetime) -> PreviewedPod:
    found = membership.read(pod.view)
    return PreviewedPod(
        view=pod.view,
        metadata=pod.metadata,
        has_started=pod.status.phase != "Pending",
        work=progress_of(pod, await context.walltime_of(pod, now)),
        disruption_mode=await context.mode_of(pod, found),
        native_group=await context.native_group_of(pod, found),
    )


async def _explain_victim(
    gangs: _GangReader, context: PodContext, pod: Pod, facts: Facts, now: datetime
) -> VictimExplanation:
    """Return which pods may preempt the pod: with its node, and with its gang on all nodes."""
    own = await _scheduled_pod(context, pod, facts, now)
    node = await context.get(object_path("nodes", None, own.node), Node) if own.node else None
    pods = [own, *await gangs.read_others(own)]
    nodes = {} if node is None else {own.node: snapshot_builder.node_info_of(node)}
    snapshot = Snapshot(
        now=now, nodes=nodes, gangs=snapshot_builder.gang_infos_of(pods), settings=facts.settings
    )
    return explain_victim(own, snapshot)


async def _scheduled_pod(
    context: PodContext, pod: Pod, facts: Facts, now: datetime
) -> ScheduledPod:
    native = await context.native_group_of(pod, membership.read(pod.view))
    return snapshot_builder.scheduled_pod_of(
        pod, facts, native=native, job_walltime=await context.walltime_of(pod, now), now=now
    )


def _report_unreadable(reason: str) -> None:
    echo(f"unreadable: {reason}", err=True)
