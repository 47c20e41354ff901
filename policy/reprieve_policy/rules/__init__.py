"""One list of rules. Each has a stable id, one module, and says for itself what it checks.

A rule is a pure function `(object, old, facts) -> Verdict`; `old` is `None` unless the object is being updated.
"""

from collections.abc import Callable
from typing import NamedTuple

from reprieve_policy.facts import Facts
from reprieve_policy.kinds import POD_KINDS
from reprieve_policy.objects import Resource
from reprieve_policy.verdict import Verdict

from . import checkpoint, koordinator, mark, namespace, preemption_class, preemption_priority, priority_class

Check = Callable[[Resource, Resource | None, Facts], Verdict]


class Rule(NamedTuple):
    """A rule and the kinds that it concerns."""

    id: str
    kinds: frozenset[str]
    check: Check


_PRIORITY_CLASSES = frozenset({"PriorityClass"})
_NAMESPACES = frozenset({"Namespace"})

RULES: tuple[Rule, ...] = (
    Rule("preemption-class", POD_KINDS, preemption_class.check),
    Rule("koordinator-labels", POD_KINDS, koordinator.check),
    Rule("checkpoint", POD_KINDS, checkpoint.check),
    Rule("soft-eviction-mark", POD_KINDS, mark.check),
    Rule("preemption-priority", POD_KINDS, preemption_priority.check),
    Rule("preemption-toleration", _PRIORITY_CLASSES, priority_class.check_toleration),
    Rule("priority-class-defence", _PRIORITY_CLASSES, priority_class.check_defence),
    Rule("priority-class-default", _PRIORITY_CLASSES, priority_class.check_default_class),
    Rule("namespace-policy", _NAMESPACES, namespace.check),
)
