"""A pod that asks for the agent is one in which the agent can work.

Checked: `reprieve.dev/agent` is `enabled` or `disabled`. With `enabled` and a hint `file://` or
`signal://`, the pod is not on its node's network, not on Windows, has up to 100 containers, and
leaves port 10473 and the volume `reprieve-agent` to the agent. A file is in a folder where the
containers mount one emptyDir, without `subPath`, or where they mount no volume: the agent then
brings a volume, which must not hide a system folder. For a signal, `shareProcessNamespace` is true,
and the container's user is set and is not root. Warned of: an agent without such a hint; it is not
added.

Why: the agent has only the rights of a user's own container. Otherwise an obstacle to writing the
file or sending the signal would show only when the pod is evicted; a pod without an agent is
notified by annotation.

Source: document 001, "Preemption Sequence": a checkpoint is requested by signal or shared memory.

Setting: `agentImage`.
"""

from collections.abc import Iterator

from reprieve_policy import keys
from reprieve_policy.checkpointing import agent
from reprieve_policy.checkpointing.agent import AgentPlacement
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import PodView, Resource, pod_views
from reprieve_policy.verdict import NO_FINDINGS, Verdict, annotation_path


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check the annotation of the pod or of the template, and what the agent needs."""
    verdicts = tuple(_check(view) for view in pod_views(resource) if keys.AGENT in view.annotations)
    return Verdict.merged(verdicts) if verdicts else NO_FINDINGS


def _check(view: PodView) -> Verdict:
    path, value = annotation_path(view.prefix, keys.AGENT), view.annotations[keys.AGENT]
    bad = agent.ACCEPTED_VALUES.check(value, path)
    if bad is not None:
        return Verdict(violations=(bad,))
    # An agent that is already there was found to work when it was added to the pod.
    if value != agent.ENABLED or agent.has_agent(view.spec.initContainers):
        return NO_FINDINGS
    if not agent.wants_agent(view):
        return Verdict(warnings=tuple(_warn_without_effect(view, path)))
    place = agent.find_placement(view) if view.spec.containers is not None else ()
    return NO_FINDINGS if isinstance(place, AgentPlacement) else Verdict(violations=place)


def _warn_without_effect(view: PodView, path: str) -> Iterator[str]:
    # Another rule reports an unreadable hint.
    if keys.CHECKPOINT_HINT not in view.annotations or agent.hint_of(view) is not None:
        yield f"{path}: has no effect without a hint file:// or signal://"
