"""What `explain` says of who may preempt a pod, and from when, is what would be decided."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.toleration import Candidate, Toleration
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.gangs.disruption import Mode
from reprieve_policy.keys import HOME_NAMESPACE
from reprieve_policy.preemption.cost import Work
from reprieve_policy.preemption.selection import Ground, why_not
from reprieve_policy.preemption.selection.explain import Prospect, Tolerated, foretell
from reprieve_policy.preemption.selection.snapshot import NOBODY, Group, GroupKey, Guest, Preemptor, Room, Scene, Tenant
from reprieve_testing.builders import NOW, after

GANG = GroupKey("team", "g")
NORMAL = Tenant(uid="u", namespace="team", name="p", node="n", priority=100, defence=100, preemption_class=3)
ABOVE_3 = (4, 5, 6, 7, 8, 9, 10)


def tolerating(minimum: int, seconds: int, scheduled: float | None = -60) -> Candidate:
    since = None if scheduled is None else after(scheduled)
    return Candidate(has_priority_class=True, toleration=Toleration(minimum, seconds), scheduled_at=since)


def ending_in(seconds: float) -> Work:
    return Work(walltime=Walltime(after(seconds - 3600), 3600))


def scene_of(
    tenant: Tenant, others: Sequence[Tenant] = (), settings: PolicySettings | None = None, home: str = ""
) -> Scene:
    members = (tenant, *others)
    groups = {} if tenant.group is None else {GANG: Group(key=GANG, mode=tenant.mode, members=members)}
    room = Room(name="n", labels={HOME_NAMESPACE: home} if home else {}, tenants=members)
    return Scene(now=NOW, rooms={"n": room}, groups=groups, settings=settings or PolicySettings())


@dataclass(frozen=True, kw_only=True)
class Case:
    tenant: Tenant = NORMAL
    others: Sequence[Tenant] = ()
    settings: PolicySettings | None = None
    classes: tuple[int, ...] = ABOVE_3
    ground: Ground | None = None
    until: float | None = None
    tolerated: Tolerated | None = None


MATE = replace(NORMAL, uid="v", name="mate", group=GANG, mode=Mode.ALL)
CASES = {
    "strictly higher classes may preempt it": Case(),
    "of the default's pods, those of the default too: nobody has said anything": Case(
        tenant=replace(NORMAL, preemption_class=4), classes=(4, 5, 6, 7, 8, 9, 10)
    ),
    "or those of the bands above": Case(settings=PolicySettings(class_rule="banded")),
    "which are fewer": Case(
        tenant=replace(NORMAL, preemption_class=5), settings=PolicySettings(class_rule="banded"), classes=(7, 8, 9, 10)
    ),
    "one that is not preemptible never is": Case(
        tenant=replace(NORMAL, is_non_preemptible=True), classes=(), ground=Ground.NON_PREEMPTIBLE
    ),
    "one that is nearly complete is let finish, then it is like any other": Case(
        tenant=replace(NORMAL, work=Work(walltime=Walltime(after(-3500), 3600))),
        ground=Ground.NEAR_COMPLETION,
        until=100,
    ),
    "one that goes already is taken by nobody": Case(
        tenant=replace(NORMAL, is_going=True), classes=(), ground=Ground.GOING
    ),
    "a service at home stays": Case(tenant=replace(NORMAL, is_service=True), classes=(), ground=Ground.HOME),
    "a gang that goes as a whole is protected by what protects one of it": Case(
        tenant=replace(NORMAL, group=GANG, mode=Mode.ALL),
        others=[replace(MATE, is_non_preemptible=True)],
        classes=(),
        ground=Ground.GANG,
    ),
    "and may be preempted by whoever may preempt all of it": Case(
        tenant=replace(NORMAL, group=GANG, mode=Mode.ALL),
        others=[replace(MATE, preemption_class=7)],
        classes=(8, 9, 10),
    ),
    "of one that is nearly complete, the last to end is let finish, then it is like any other": Case(
        tenant=replace(NORMAL, group=GANG, mode=Mode.ALL, work=ending_in(60)),
        others=[replace(MATE, preemption_class=5, work=ending_in(120))],
        classes=(6, 7, 8, 9, 10),
        ground=Ground.GANG,
        until=120,
    ),
    "of one that is not, nobody is let finish": Case(
        tenant=replace(NORMAL, group=GANG, mode=Mode.ALL, work=ending_in(60)), others=[MATE]
    ),
    "of one that goes pod by pod, each is let finish": Case(
        tenant=replace(NORMAL, group=GANG, work=ending_in(60)),
        others=[replace(MATE, mode=Mode.SINGLE)],
        ground=Ground.NEAR_COMPLETION,
        until=60,
    ),
    "its PriorityClass may refuse lower priorities for a time": Case(
        tenant=replace(NORMAL, toleration=tolerating(1000, 600)), tolerated=Tolerated(minimum=1000, until=after(540))
    ),
    "or for ever": Case(
        tenant=replace(NORMAL, toleration=tolerating(1000, -1)), tolerated=Tolerated(minimum=1000, until=None)
    ),
    "or as long as it is not scheduled": Case(
        tenant=replace(NORMAL, toleration=tolerating(1000, 0, None)), tolerated=Tolerated(minimum=1000, until=None)
    ),
    "which ends": Case(tenant=replace(NORMAL, toleration=tolerating(1000, 60))),
    "and says nothing about who could not preempt it anyway": Case(
        tenant=replace(NORMAL, toleration=tolerating(101, -1))
    ),
    "one that cannot be read tolerates nothing": Case(
        tenant=replace(NORMAL, toleration=replace(NOBODY, has_priority_class=True))
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_who_may_preempt_it_and_from_when(case: Case) -> None:
    found = foretell(case.tenant, scene_of(case.tenant, case.others, case.settings))
    assert found.preemptor_classes == case.classes
    assert (found.protected and found.protected.ground) == case.ground
    assert found.until == (None if case.until is None else after(case.until))
    assert found.tolerated == case.tolerated
    assert (found.preemption_class, found.preemption_priority) == (case.tenant.preemption_class, case.tenant.defence)


SECONDS = st.integers(-400, 400)
TOLERATIONS = st.one_of(
    st.just(NOBODY),
    st.builds(tolerating, st.integers(0, 30), st.sampled_from([-1, 0, 30, 90]), st.none() | SECONDS),
)
WALLTIMES = st.none() | st.builds(Walltime, st.builds(after, SECONDS), st.integers(0, 800))
TENANTS = st.builds(
    Tenant,
    uid=st.sampled_from("ab"),
    namespace=st.just("team"),
    name=st.just("p"),
    node=st.just("n"),
    defence=st.integers(0, 20),
    preemption_class=st.integers(0, 10),
    is_non_preemptible=st.sampled_from([False, False, False, True]),
    is_service=st.booleans(),
    is_going=st.sampled_from([False, False, False, True]),
    lacks_priority_class=st.sampled_from([False, False, False, True]),
    toleration=TOLERATIONS,
    work=st.builds(Work, walltime=WALLTIMES),
    group=st.none(),
)
SETTINGS = st.builds(PolicySettings, class_rule=st.sampled_from(["strict", "banded"]), default_class=st.integers(0, 6))


def is_foretold(found: Prospect, preemptor: Preemptor) -> bool:
    """True where the prospect says that this preemptor may take the pod now."""
    tolerated = found.tolerated is not None and preemptor.guest.priority < found.tolerated.minimum
    is_above = preemptor.guest.priority > found.preemption_priority
    return (
        found.protected is None and preemptor.preemption_class in found.preemptor_classes and is_above and not tolerated
    )


@given(TENANTS, SETTINGS, st.integers(0, 10), st.integers(0, 35), st.sampled_from(["", "team", "other"]))
def test_what_is_foretold_is_what_is_decided(
    tenant: Tenant, settings: PolicySettings, preemption_class: int, priority: int, home: str
) -> None:
    scene = scene_of(tenant, settings=settings, home=home)
    preemptor = Preemptor(guest=Guest(uid="x", priority=priority), preemption_class=preemption_class)
    assert is_foretold(foretell(tenant, scene), preemptor) == (why_not(preemptor, tenant, scene) is None)
