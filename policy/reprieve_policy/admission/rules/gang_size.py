"""A gang's sizes are positive whole numbers that agree with each other and can be reached.

Checked: `min-available` and the gang's size, in every dialect with such keys on a pod, are numbers
from 1; several of the same meaning agree; the minimum is not above the size; a minimum has a gang;
Koordinator's mode is `Strict` or `NonStrict`. Warned of: a Koordinator gang whose minimum is below
its size, because it is preempted as a whole all the same; a minimum above what the workload ever
runs at once (a Job's parallelism and completions, replicas). A workload that is scaled to 0 is
paused, and its size is unknown.

Why: upstream ignores what it cannot parse and starts the pod alone; a gang that is never complete
waits for ever.

Source: document 004, "PodGroup"; document 000, "Compatibility": only a minimum equal to the total
is supported.

Setting: `unreachableMinAvailable: refuse` refuses a minimum that the workload never reaches. The
default warns: a gang may have pods of several workloads.
"""

from collections.abc import Iterator

from reprieve_policy import keys
from reprieve_policy.config.annotation_values import OneOf
from reprieve_policy.config.settings import REFUSE
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import membership
from reprieve_policy.gangs.membership import GangSize
from reprieve_policy.kube import pod_requests
from reprieve_policy.kube.objects import PodView, Resource, pod_views
from reprieve_policy.verdict import NO_FINDINGS, Verdict, Violation, ViolationKind, annotation_path

_STRICT = "Strict"
_MODE = OneOf((_STRICT, "NonStrict"))
"""Koordinator's modes; any other value silently means the first."""


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check the gang's size on the pod or the template."""
    views = [view for view in pod_views(resource) if membership.mentions_gang(view)]
    if not views:
        return NO_FINDINGS
    violations = [found for view in views for found in _check_view(view)]
    warnings = [text for view in views for text in _warn_unequal(view)]
    most = pod_requests.pods_of(resource)
    unreachable = [
        number
        for view in views
        for number in membership.min_available_values(view)
        if most and _int(number) > most
    ]
    if facts.settings.unreachable_min_available == REFUSE:
        detail = f"must be at most {most}: the {resource.kind} runs no more pods at once"
        violations.extend(
            Violation(path, ViolationKind.INVALID, str(value), detail)
            for path, value in unreachable
        )
    else:
        warnings.extend(f"{path}: only {most} run at once" for path, _ in unreachable)
    return Verdict(violations=tuple(violations), warnings=tuple(warnings))


def _check_view(view: PodView) -> Iterator[Violation]:
    minimums, sizes = list(membership.min_available_values(view)), list(membership.gang_sizes(view))
    unreadable = [
        number.value for number in (*minimums, *sizes) if isinstance(number.value, Violation)
    ]
    yield from unreadable or _contradictions(minimums, sizes)
    yield from _nameless(view)
    mode = view.annotations.get(keys.KOORDINATOR_MODE, _STRICT)
    bad_mode = _MODE.check(mode, annotation_path(view.prefix, keys.KOORDINATOR_MODE))
    if bad_mode is not None:
        yield bad_mode


def _contradictions(minimums: list[GangSize], sizes: list[GangSize]) -> Iterator[Violation]:
    """Yield the violations of readable numbers."""
    for numbers in (minimums, sizes):
        for number in numbers[1:]:
            if number.value != numbers[0].value:
                detail = f'must be "{numbers[0].value}", as in {numbers[0].path}'
                yield Violation(number.path, ViolationKind.INVALID, str(number.value), detail)
    for minimum, size in zip(minimums[:1], sizes[:1], strict=False):
        if _int(minimum) > _int(size):
            detail = f"must be at most {size.value}, as in {size.path}: the gang has no more pods"
            yield Violation(minimum.path, ViolationKind.INVALID, str(minimum.value), detail)


def _nameless(view: PodView) -> Iterator[Violation]:
    """Yield a violation for a minimum without a gang: a scheduler would start the pod alone."""
    if next(membership.gang_names(view), None) is not None:
        return
    for dialect in membership.dialects_in(view):
        if dialect.minimum is not None and dialect.minimum.read(view):
            yield Violation(
                dialect.name.path(view.prefix), ViolationKind.REQUIRED, None, "the name of the gang"
            )


def _warn_unequal(view: PodView) -> Iterator[str]:
    texts = (
        view.annotations.get(key, "")
        for key in (keys.KOORDINATOR_MIN_AVAILABLE, keys.KOORDINATOR_TOTAL)
    )
    minimum, total = (membership.SIZE.parse(text, "") for text in texts)
    if isinstance(minimum, int) and isinstance(total, int) and minimum < total:
        path = annotation_path(view.prefix, keys.KOORDINATOR_MIN_AVAILABLE)
        yield f"{path}: below the total {total}"


def _int(number: GangSize) -> int:
    return number.value if isinstance(number.value, int) else 0
