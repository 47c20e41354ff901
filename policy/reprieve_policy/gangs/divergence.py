"""How a pod differs from the rest of its gang.

Traits are effective values, so a pod that states a default does not differ from one that states
nothing.
"""

from collections.abc import Iterator, Mapping

from reprieve_policy import facts as known
from reprieve_policy import keys
from reprieve_policy.config import koordinator
from reprieve_policy.facts import Facts, GangTraits
from reprieve_policy.kube.objects import PodView
from reprieve_policy.verdict import Violation, ViolationKind, annotation_path, label_path

from . import disruption, membership
from .membership import Gang

TRAIT_LABELS: Mapping[str, str] = {
    "preemptible": "preemptible",
    "can_preempt": "can-preempt",
    "preemption_class": "class",
    "priority": "priority",
    "preemption_priority": "preemption priority",
    "min_available": "min-available",
    "size": "size",
    "disruption_mode": "disruption mode",
}
"""The names of the traits in messages."""


def traits_of(view: PodView, own: Gang, facts: Facts) -> GangTraits:
    """Return the traits of a pod, or of a template's pods, that its gang must share."""
    settings, own_class = facts.settings, known.priority_class_of(view, facts)
    given = 0 if own_class is None or own_class.value is None else own_class.value
    priority = given if view.spec.priority is None else view.spec.priority
    return GangTraits(
        preemptible=koordinator.is_preemptible(
            view.labels, disable_default_preemptiable=settings.default_preemptible is False
        ),
        can_preempt=koordinator.can_preempt(
            view.labels,
            known.preemption_policy(view, facts),
            disable_default_trigger_preemption=settings.default_can_preempt is False,
        ),
        preemption_class=known.effective_class(view, facts),
        priority=priority,
        preemption_priority=known.preemption_priority_of(view, priority, facts),
        min_available=own.min_available,
        size=own.size,
        disruption_mode=disruption.stated_mode(view.annotations),
    )


def differences(traits: GangTraits, rest: GangTraits) -> Iterator[str]:
    """Yield the names of the traits in which a pod differs from the rest of its gang."""
    for name, mine, theirs in zip(GangTraits._fields, traits, rest, strict=True):
        # The preemption priority follows the priority: one difference is not reported twice.
        is_consequence = name == "preemption_priority" and traits.priority != rest.priority
        if mine != theirs and not is_consequence:
            yield name


def violation(
    view: PodView, name: str, traits: GangTraits, rest: GangTraits, gang_name: str
) -> Violation:
    """Return what to change in a pod that differs in the trait `name`."""
    mine, theirs = _text(getattr(traits, name)), _text(getattr(rest, name))
    path, whose = _paths(view)[name], f'as in the rest of gang "{gang_name}"'
    if theirs is None:
        return Violation(path, ViolationKind.INVALID, mine, f"must be unset, {whose}")
    if mine is None:
        return Violation(
            path, ViolationKind.REQUIRED, None, f'{TRAIT_LABELS[name]} must be "{theirs}", {whose}'
        )
    return Violation(path, ViolationKind.INVALID, mine, f'must be "{theirs}", {whose}')


def _paths(view: PodView) -> dict[str, str]:
    name = next((gang_name.path for gang_name in membership.gang_names(view)), "")
    return {
        "preemptible": label_path(view.prefix, keys.PREEMPTIBLE),
        "can_preempt": label_path(view.prefix, keys.CAN_PREEMPT),
        "preemption_class": label_path(view.prefix, keys.PREEMPTION_CLASS),
        "priority": f"{view.prefix}spec.priority",
        "preemption_priority": annotation_path(view.prefix, keys.PREEMPTION_PRIORITY_CLASS),
        "min_available": next(
            (number.path for number in membership.min_available_values(view)), name
        ),
        "size": next((number.path for number in membership.gang_sizes(view)), name),
        "disruption_mode": annotation_path(view.prefix, keys.DISRUPTION_MODE),
    }


def _text(value: bool | int | str | None) -> str | None:  # noqa: FBT001 - a value to show, not a switch
    return None if value in (None, "") else str(value).lower()
