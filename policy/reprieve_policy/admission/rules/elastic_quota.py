"""In an ElasticQuota each `min` is at most its `max`, and neither is negative.

Checked: each quantity of `spec.min` and `spec.max` is readable and not negative; if both name a
resource, the `min` is not above the `max`. A resource without a `max` has no upper limit. For the
quotas of Koordinator and of scheduler-plugins.

Why: `min` is what non-preemptible pods may use, `max` what all pods may use together. A `min` above
the `max` guarantees what the scheduler then denies, and its pods wait for ever.

Source: document 000, "Proposal": "We require min should be less than or equal to max".

Setting: none.
"""

from collections.abc import Iterator

from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Quantities, Resource, Spec
from reprieve_policy.kube.values import quantity
from reprieve_policy.verdict import (
    MAX_VALUE_SHOWN,
    NO_FINDINGS,
    Verdict,
    Violation,
    ViolationKind,
    quote,
)


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check both sets of quantities, and their order."""
    spec = resource.spec or Spec()
    found: list[Violation] = []
    least, most = (
        _read(name, written or {}, found)
        for name, written in (("min", spec.min), ("max", spec.max))
    )
    found.extend(_check_order(least, most))
    return Verdict(violations=tuple(found)) if found else NO_FINDINGS


def _read(name: str, written: Quantities, found: list[Violation]) -> dict[str, int]:
    """Return the readable amounts by resource; add the violations of the others to `found`."""
    amounts: dict[str, int] = {}
    for resource, text in written.items():
        path = _path(name, resource)
        amount = quantity.parse(text, path)
        if isinstance(amount, Violation):
            found.append(amount)
        elif amount < 0:
            found.append(Violation(path, ViolationKind.INVALID, str(text), "must not be negative"))
        else:
            amounts[resource] = amount
    return amounts


def _check_order(least: dict[str, int], most: dict[str, int]) -> Iterator[Violation]:
    for resource, amount in least.items():
        if amount > most.get(resource, amount):
            detail = f"must be at most {quantity.render(most[resource])}, its max"
            yield Violation(
                _path("min", resource), ViolationKind.INVALID, quantity.render(amount), detail
            )


def _path(name: str, resource: str) -> str:
    # A custom resource's keys are any text.
    is_plain = len(resource) <= MAX_VALUE_SHOWN and resource.isascii() and resource.isprintable()
    return f"spec.{name}[{resource if is_plain else quote(resource)}]"
