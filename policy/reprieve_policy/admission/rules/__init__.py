"""One list of rules. Each has a stable id and one module, whose docstring documents what it checks.

A rule is a pure function `(object, old, facts) -> Verdict`; `old` is `None` except for an update.
"""

from collections.abc import Callable
from typing import NamedTuple

from reprieve_policy.facts import Facts
from reprieve_policy.kube.kinds import POD_KINDS
from reprieve_policy.kube.objects import Resource
from reprieve_policy.verdict import Verdict

from . import (
    agent,
    borrowed_nodes,
    checkpoint,
    checkpoint_hint,
    checkpoint_time,
    class_priority,
    disruption_mode,
    elastic_quota,
    gang_divergence,
    gang_identity,
    gang_size,
    koordinator,
    misplaced_toleration,
    namespace_policy,
    non_preemptible,
    policy_config,
    preemption_class,
    preemption_priority,
    preemption_toleration,
    priority_class_default,
    priority_class_defence,
    quota_fit,
    reserved_state,
    soft_eviction_mark,
    unfinished_job,
    unknown_key,
)

Check = Callable[[Resource, Resource | None, Facts], Verdict]


class Rule(NamedTuple):
    """A rule and the kinds that it checks."""

    id: str
    kinds: frozenset[str]
    check: Check


_GROUP_KINDS = frozenset({"Workload", "PodGroup"})
_PRIORITY_CLASSES = frozenset({"PriorityClass"})
_ELASTIC_QUOTAS = frozenset({"ElasticQuota"})
_NAMESPACES = frozenset({"Namespace"})
_CONFIG_MAPS = frozenset({"ConfigMap"})
_WITH_KEYS = POD_KINDS | _GROUP_KINDS | _PRIORITY_CLASSES | _ELASTIC_QUOTAS | _NAMESPACES

RULES: tuple[Rule, ...] = (
    Rule("preemption-class", POD_KINDS, preemption_class.check),
    Rule("koordinator-labels", POD_KINDS, koordinator.check),
    Rule("non-preemptible", POD_KINDS, non_preemptible.check),
    Rule("quota-fit", POD_KINDS, quota_fit.check),
    Rule("checkpoint", POD_KINDS, checkpoint.check),
    Rule("checkpoint-hint", POD_KINDS, checkpoint_hint.check),
    Rule("agent", POD_KINDS, agent.check),
    Rule("checkpoint-time", POD_KINDS, checkpoint_time.check),
    Rule("unfinished-job", frozenset({"Job", "CronJob"}), unfinished_job.check),
    Rule("soft-eviction-mark", POD_KINDS, soft_eviction_mark.check),
    Rule("reserved-state", POD_KINDS, reserved_state.check),
    Rule("borrowed-nodes", POD_KINDS, borrowed_nodes.check),
    Rule("preemption-priority", POD_KINDS | _GROUP_KINDS, preemption_priority.check),
    Rule("class-priority", POD_KINDS, class_priority.check),
    Rule("toleration-slip", POD_KINDS | _PRIORITY_CLASSES, misplaced_toleration.check),
    Rule("gang-identity", POD_KINDS, gang_identity.check),
    Rule("gang-size", POD_KINDS, gang_size.check),
    Rule("gang-divergence", POD_KINDS, gang_divergence.check),
    Rule("disruption-mode", POD_KINDS | _GROUP_KINDS, disruption_mode.check),
    Rule("preemption-toleration", _PRIORITY_CLASSES, preemption_toleration.check),
    Rule("priority-class-defence", _PRIORITY_CLASSES, priority_class_defence.check),
    Rule("priority-class-default", _PRIORITY_CLASSES, priority_class_default.check),
    Rule("elastic-quota", _ELASTIC_QUOTAS, elastic_quota.check),
    Rule("namespace-policy", _NAMESPACES, namespace_policy.check),
    Rule("unknown-key", _WITH_KEYS, unknown_key.check),
    Rule("policy-config", _CONFIG_MAPS, policy_config.check),
)
