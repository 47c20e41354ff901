"""A PriorityClass's right to refuse preemption, as the shipped plugin understands it."""

from dataclasses import dataclass
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy import keys
from reprieve_policy.config import toleration
from reprieve_policy.config.toleration import MAX_SECONDS, PreemptionToleration, VictimToleration
from reprieve_policy.verdict import Violation
from reprieve_testing.objects.builders import NOW, after

INT64_MAX = 2**63 - 1
MINIMUM, SECONDS = toleration.annotation_keys(keys.TOLERATION_PREFIX)
OLD_MINIMUM, OLD_SECONDS = toleration.annotation_keys(keys.OLD_TOLERATION_PREFIX)
TEN_MINUTES = PreemptionToleration(10_000, 600)
A_MINUTE_LATER = after(60)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A victim that tolerates preemptors below 10000 for ten minutes; a preemptor of 9000."""

    has_priority_class: bool = True
    toleration: PreemptionToleration | None = TEN_MINUTES
    scheduled_at: datetime | None = NOW
    preemptor_priority: int = 9000
    preemptor_never_preempts: bool = False
    now: datetime = A_MINUTE_LATER
    is_reprieved: bool = True


CASES = {
    "within the toleration time, the victim is reprieved": Case(),
    "a second before the time ends, the victim is reprieved": Case(now=after(599)),
    "at the end of the time, the victim is not reprieved: the boundary is exclusive": Case(
        now=after(600), is_reprieved=False
    ),
    "after the time, the victim is not reprieved": Case(now=after(601), is_reprieved=False),
    "a preemptor of the minimum priority takes it": Case(
        preemptor_priority=10_000, is_reprieved=False
    ),
    "a preemptor just below the minimum does not": Case(preemptor_priority=9999),
    "negative seconds tolerate for ever": Case(
        toleration=PreemptionToleration(10_000, -1), now=after(10**9)
    ),
    "zero seconds tolerate nothing": Case(
        toleration=PreemptionToleration(10_000, 0), is_reprieved=False
    ),
    "zero seconds tolerate nothing, even immediately": Case(
        toleration=PreemptionToleration(10_000, 0), now=NOW, is_reprieved=False
    ),
    "the longest possible toleration does not overflow": Case(
        toleration=PreemptionToleration(10_000, MAX_SECONDS), now=after(10**9)
    ),
    "a pod whose PodScheduled is not True tolerates": Case(scheduled_at=None, now=after(10**6)),
    "a pod scheduled in the future (a clock apart) tolerates": Case(now=after(-3600)),
    "a preemptor that never preempts is tolerated": Case(
        preemptor_never_preempts=True, preemptor_priority=10_000
    ),
    "an unreadable policy is no toleration": Case(toleration=None, is_reprieved=False),
    "an unreadable policy still refuses one that never preempts": Case(
        toleration=None, preemptor_never_preempts=True
    ),
    "a pod without a PriorityClass tolerates no preemptor": Case(
        has_priority_class=False, is_reprieved=False
    ),
    "a pod without a PriorityClass does not even tolerate one that never preempts": Case(
        has_priority_class=False, preemptor_never_preempts=True, is_reprieved=False
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_victims_are_reprieved_as_upstream_reprieves_them(case: Case) -> None:
    victim = VictimToleration(
        has_priority_class=case.has_priority_class,
        policy=case.toleration,
        scheduled_at=case.scheduled_at,
    )
    is_reprieved = toleration.tolerates(
        victim,
        case.preemptor_priority,
        preemptor_never_preempts=case.preemptor_never_preempts,
        now=case.now,
    )
    assert is_reprieved is case.is_reprieved


READ = {
    "both annotations are read": (
        {MINIMUM: "10000", SECONDS: "3600"},
        PreemptionToleration(10_000, 3600),
    ),
    "the minimum defaults to the class's value + 1": (
        {SECONDS: "3600"},
        PreemptionToleration(8001, 3600),
    ),
    "the seconds default to none": ({MINIMUM: "10000"}, PreemptionToleration(10_000, 0)),
    "a class without annotations tolerates no preemptor": ({}, PreemptionToleration(8001, 0)),
    "a negative number of seconds is for ever": ({SECONDS: "-1"}, PreemptionToleration(8001, -1)),
    "the most negative number of seconds is for ever": (
        {SECONDS: str(-(2**63))},
        PreemptionToleration(8001, -(2**63)),
    ),
    "the highest priority is read": (
        {MINIMUM: "2147483647"},
        PreemptionToleration(2_147_483_647, 0),
    ),
    "the lowest priority is read": (
        {MINIMUM: "-2147483648"},
        PreemptionToleration(-2_147_483_648, 0),
    ),
    "the longest time that upstream holds is read": (
        {SECONDS: "9223372036"},
        PreemptionToleration(8001, 9_223_372_036),
    ),
    "a plus sign is read, as Go does": ({SECONDS: "+5"}, PreemptionToleration(8001, 5)),
    "the older prefix is not read": (
        {OLD_MINIMUM: "10000", OLD_SECONDS: "3600"},
        PreemptionToleration(8001, 0),
    ),
}

REFUSED = {
    "a priority above int32": (
        {MINIMUM: "2147483648"},
        {MINIMUM: "must be a whole number between -2147483648 and"},
    ),
    "seconds that overflow upstream's duration": (
        {SECONDS: "9223372037"},
        {SECONDS: "must be at most 9223372036"},
    ),
    "the highest int64": ({SECONDS: str(INT64_MAX)}, {SECONDS: "must be at most 9223372036"}),
    "seconds above int64": ({SECONDS: str(INT64_MAX + 1)}, {SECONDS: "must be at most 9223372036"}),
    "seconds below int64": ({SECONDS: str(-INT64_MAX - 2)}, {SECONDS: "must be whole seconds"}),
    "a duration instead of seconds": ({SECONDS: "1h"}, {SECONDS: "must be whole seconds"}),
    "seconds with a space": ({SECONDS: " 5"}, {SECONDS: "must be whole seconds"}),
    "an empty text": ({SECONDS: ""}, {SECONDS: "must be whole seconds"}),
    "both annotations are invalid": (
        {MINIMUM: "high", SECONDS: "1h"},
        {MINIMUM: "must be a whole number", SECONDS: "must be whole seconds"},
    ),
}


@pytest.mark.parametrize(("annotations", "want"), READ.values(), ids=READ)
def test_a_policy_is_read_as_upstream_reads_it(
    annotations: dict[str, str], want: PreemptionToleration
) -> None:
    assert toleration.parse(annotations, 8000) == want


@pytest.mark.parametrize(("annotations", "want"), REFUSED.values(), ids=REFUSED)
def test_a_value_that_upstream_ignores_is_a_violation(
    annotations: dict[str, str], want: dict[str, str]
) -> None:
    found = toleration.parse(annotations, 8000)
    assert isinstance(found, tuple)
    assert [violation.path for violation in found] == [
        f"metadata.annotations[{key}]" for key in want
    ]
    assert [violation.value for violation in found] == [annotations[key] for key in want]
    for violation, detail in zip(found, want.values(), strict=True):
        assert violation.detail.startswith(detail)


def test_the_new_prefix_alone_causes_no_warning() -> None:
    assert toleration.check_prefixes({MINIMUM: "10000", SECONDS: "3600"}) == ((), ())


def test_the_older_prefix_warns() -> None:
    violations, warnings = toleration.check_prefixes({OLD_SECONDS: "3600"})
    assert violations == ()
    assert warnings == (f"metadata.annotations[{OLD_SECONDS}]: unread; use *.x-k8s.io",)


def test_both_prefixes_that_agree_only_warn() -> None:
    violations, warnings = toleration.check_prefixes({SECONDS: "3600", OLD_SECONDS: "3600"})
    assert violations == ()
    assert len(warnings) == 1


def test_both_prefixes_that_differ_are_refused() -> None:
    violations, _ = toleration.check_prefixes(
        {MINIMUM: "1", OLD_MINIMUM: "2", SECONDS: "3600", OLD_SECONDS: "60"}
    )
    assert [(violation.path, violation.value) for violation in violations] == [
        (f"metadata.annotations[{OLD_MINIMUM}]", "2"),
        (f"metadata.annotations[{OLD_SECONDS}]", "60"),
    ]


PRIORITIES = st.integers(min_value=-(2**31), max_value=2**31 - 1)
CANDIDATES = st.builds(
    VictimToleration,
    has_priority_class=st.booleans(),
    policy=st.none()
    | st.builds(PreemptionToleration, PRIORITIES, st.integers(min_value=-2, max_value=MAX_SECONDS)),
    scheduled_at=st.none() | st.integers(min_value=-(10**9), max_value=10**9).map(after),
)


@given(
    victim=CANDIDATES,
    priority=PRIORITIES,
    never_preempts=st.booleans(),
    first=st.integers(min_value=0, max_value=10**10),
    wait=st.integers(min_value=0, max_value=10**10),
)
def test_a_later_now_never_protects_again(
    *, victim: VictimToleration, priority: int, never_preempts: bool, first: int, wait: int
) -> None:
    def tolerates(seconds: int) -> bool:
        return toleration.tolerates(
            victim, priority, preemptor_never_preempts=never_preempts, now=after(seconds)
        )

    assert tolerates(first) or not tolerates(first + wait)


@given(CANDIDATES, PRIORITIES, PRIORITIES)
def test_a_higher_preemptor_is_never_refused_a_victim_of_a_lower_one(
    victim: VictimToleration, one: int, other: int
) -> None:
    def tolerates(priority: int) -> bool:
        return toleration.tolerates(victim, priority, preemptor_never_preempts=False, now=NOW)

    assert tolerates(min(one, other)) or not tolerates(max(one, other))


@given(
    st.dictionaries(st.sampled_from([MINIMUM, SECONDS, OLD_MINIMUM, OLD_SECONDS]), st.text()),
    PRIORITIES,
)
def test_any_text_is_either_a_policy_or_a_violation(
    annotations: dict[str, str], value: int
) -> None:
    found = toleration.parse(annotations, value)
    assert isinstance(found, PreemptionToleration) or all(
        isinstance(violation, Violation) for violation in found
    )
    toleration.check_prefixes(annotations)
