"""A toleration of preemption is where schedulers read it: an annotation of a PriorityClass.

Warned of: one of its keys, under either prefix, among the annotations of a pod or of a template, or
among the labels of a PriorityClass.

Why: no scheduler reads it there, and its author relies on a protection that does not exist. It has
no other effect, so it is not refused.

Source: document 002, "API": the policy is an annotation of PriorityClasses, because only admins
create those.

Setting: none.
"""

from collections.abc import Iterator, Mapping

from reprieve_policy.config import toleration
from reprieve_policy.facts import Facts
from reprieve_policy.keys import OLD_TOLERATION_PREFIX, TOLERATION_PREFIX
from reprieve_policy.kube.objects import Resource, labels_of, pod_views
from reprieve_policy.verdict import NO_FINDINGS, Verdict

_KEYS = frozenset(
    (
        *toleration.annotation_keys(TOLERATION_PREFIX),
        *toleration.annotation_keys(OLD_TOLERATION_PREFIX),
    )
)
_MISPLACED = "unread; set it on a PriorityClass"


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Warn of a toleration that no scheduler reads."""
    warnings = tuple(_warn(resource))
    return Verdict(warnings=warnings) if warnings else NO_FINDINGS


def _warn(resource: Resource) -> Iterator[str]:
    if resource.kind == "PriorityClass":
        yield from _misplaced(labels_of(resource.metadata), "metadata.labels")
    for view in pod_views(resource):
        yield from _misplaced(view.annotations, f"{view.prefix}metadata.annotations")


def _misplaced(holder: Mapping[str, str], path: str) -> Iterator[str]:
    if _KEYS.isdisjoint(holder):
        return
    # The whole key in the path of a CronJob's template would not fit into a warning.
    names = {key.rpartition("/")[2] for key in holder if key in _KEYS}
    yield from (f"{path}[*/{name}]: {_MISPLACED}" for name in sorted(names))
