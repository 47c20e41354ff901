"""Lent nodes are given back without a command: for which pods, from whom, and how much."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.conditions import Condition
from reprieve_policy.kube.limits.quota import Quota, Quotas
from reprieve_policy.kube.objects import NameOnly, ObjectMeta, OwnerReference
from reprieve_policy.kube.pods import (
    Pod,
    PodSpec,
    PodStatus,
)
from reprieve_policy.preemption import automatic_reclaim, selection
from reprieve_policy.preemption.automatic_reclaim import ReclaimTurn, RoundDecision, WaitingPod
from reprieve_policy.preemption.selection import node_fit, select_victims
from reprieve_policy.preemption.selection.snapshot import (
    TOO_LARGE,
    AntiAffinity,
    GangKey,
    NodeAffinityTerm,
    NodeInfo,
    Preemptor,
    Requirement,
    ScheduledPod,
    SchedulingConstraints,
    Snapshot,
    Taint,
    TaintToleration,
)
from reprieve_testing.objects.builders import NOW, a_quota, after
from reprieve_testing.objects.snapshots import (
    ALL_PODS,
    a_node_info,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
    amounts,
    with_fields,
)

HOME = "home"
TAKEN = {keys.HOME_NAMESPACE: HOME}
DEFAULTS = PolicySettings()


def waiting(
    name: str = "mine", *, since: float = -600, cpu: float = 1, **fields: object
) -> WaitingPod:
    """Return a pod of the home Namespace that is due, of priority 0 like all borrowers."""
    preemptor = a_preemptor(priority=0, cpu=cpu, namespace=HOME, name=name, takes_back_nodes=True)
    preemptor = replace(preemptor, demand=replace(preemptor.demand, uid=name))
    is_due = bool(fields.pop("is_due", True))
    return WaitingPod(
        preemptor=replace(preemptor, **fields),  # type: ignore[arg-type]  # named by tests
        turned_away_at=after(since),
        is_due=is_due,
    )


def borrower(
    name: str, *, cpu: float = 1, started: float = -3600, **fields: object
) -> ScheduledPod:
    return a_scheduled_pod(name, cpu=cpu, started=started, **fields)


def lent(name: str, *pods: ScheduledPod, **fields: object) -> NodeInfo:
    return replace(a_node_info(name, *pods), labels=TAKEN, **fields)  # type: ignore[arg-type]


def decide(*pods: WaitingPod, snapshot: Snapshot) -> list[str]:
    """Return the pod that begins a round and its victims, nothing without a round."""
    found = automatic_reclaim.decide_round(ReclaimTurn(pods), snapshot).round
    return [] if found is None else [found.pod.uid, *sorted(one.uid for one in found.victims)]


def tiny(name: str, *, cpu: float = 0.1, **fields: object) -> ScheduledPod:
    return borrower(name, cpu=cpu, **fields)


REPELLING_AND_STAYING = tiny("a", anti_affinity=ALL_PODS, is_non_preemptible=True)
OF_ANOTHER_NAMESPACE = (AntiAffinity(frozenset({"other"}), ()),)
TO_DATABASES = (AntiAffinity(frozenset({HOME}), (Requirement("app", "In", ("db",)),)),)
FULL = lent("n", borrower("a"), borrower("b"), borrower("c", started=-60), borrower("d"))


@dataclass(frozen=True, kw_only=True)
class Case:
    pods: tuple[WaitingPod, ...] = (waiting(),)
    nodes: tuple[NodeInfo, ...] = (FULL,)
    settings: PolicySettings = DEFAULTS
    want: list[str] = field(default_factory=list)


def leaving(
    name: str, preemptor: str, *, only_marked: bool = False, cpu: float = 1
) -> ScheduledPod:
    expected_at = None if only_marked else NOW
    return borrower(
        name,
        cpu=cpu,
        is_leaving=True,
        notified=not only_marked,
        release_expected_at=expected_at,
        preemptor_uid=preemptor,
    )


def tolerant(**fields: object) -> WaitingPod:
    constraints = SchedulingConstraints(
        tolerations=(TaintToleration(keys.HOME_NAMESPACE, "Equal", HOME, ""),)
    )
    pod = waiting(**fields)  # type: ignore[arg-type]
    demand = replace(pod.preemptor.demand, constraints=constraints)
    return replace(pod, preemptor=replace(pod.preemptor, demand=demand))


GANG = GangKey(HOME, "train")
CASES = {
    "the borrower of the same priority that loses the least leaves": Case(want=["mine", "c"]),
    "no more leave than are needed, and the least loss of all sets counts": Case(
        pods=(waiting(cpu=2),),
        nodes=(lent("n", borrower("a", cpu=2), borrower("b"), borrower("c", started=-60)),),
        want=["mine", "b", "c"],
    ),
    "a round that would take more than maxVictims does not begin": Case(
        pods=(waiting(cpu=4),), want=[]
    ),
    "but does where the limit allows it": Case(
        pods=(waiting(cpu=4),),
        settings=PolicySettings(max_victims=4),
        want=["mine", "a", "b", "c", "d"],
    ),
    "a pod that is not due begins no round": Case(pods=(waiting(is_due=False),)),
    "no pod leaves where there is room": Case(nodes=(lent("n", borrower("a")),)),
    "no pod leaves where waiting is enough": Case(
        nodes=(lent("n", leaving("a", ""), borrower("b"), borrower("c"), borrower("d")),)
    ),
    "a borrower of a higher priority stays": Case(
        nodes=(lent("n", borrower("a", cpu=4, preemption_priority=1)),)
    ),
    "a borrower of a higher class stays": Case(
        nodes=(lent("n", borrower("a", cpu=4, preemption_class=5)),)
    ),
    "a borrower of a lower class leaves": Case(
        nodes=(lent("n", borrower("a", cpu=4, preemption_class=3)),), want=["mine", "a"]
    ),
    "a lent node is chosen by its taint as well, if the pod tolerates it": Case(
        pods=(tolerant(),),
        nodes=(replace(FULL, labels={}, taints=(Taint(keys.HOME_NAMESPACE, HOME, "NoSchedule"),)),),
        want=["mine", "c"],
    ),
    "a node that the pod does not tolerate stays as it is": Case(
        nodes=(replace(FULL, taints=(Taint(keys.HOME_NAMESPACE, HOME, "NoSchedule"),)),)
    ),
    "a pod whose place depends on other pods begins no round": Case(
        pods=(waiting(depends_on_other_pods=True),)
    ),
    "a node does not count of which a pod that stays keeps the pod away": Case(
        nodes=(lent("n", REPELLING_AND_STAYING, borrower("b"), borrower("c"), borrower("d")),)
    ),
    "nor one of which a pod keeps others away, but it cannot be said whom": Case(
        nodes=(
            lent("n", replace(REPELLING_AND_STAYING, anti_affinity=(TOO_LARGE,)), borrower("b")),
        )
    ),
    "another lent node does, meanwhile": Case(
        nodes=(lent("m", REPELLING_AND_STAYING), FULL), want=["mine", "c"]
    ),
    "a borrower that keeps the pod away leaves with those that have to make room": Case(
        pods=(waiting(cpu=2),),
        nodes=(lent("n", tiny("a", anti_affinity=ALL_PODS), borrower("b", cpu=3), borrower("c")),),
        want=["mine", "a", "b"],
    ),
    "alone where there is room": Case(
        nodes=(lent("n", tiny("a", anti_affinity=ALL_PODS), borrower("b")),), want=["mine", "a"]
    ),
    "also where it cannot be said whom it keeps away": Case(
        nodes=(lent("n", tiny("a", anti_affinity=(TOO_LARGE,)), borrower("b", cpu=4)),),
        want=["mine", "a", "b"],
    ),
    "it stays where what it keeps away are other pods": Case(
        nodes=(lent("n", tiny("a", anti_affinity=OF_ANOTHER_NAMESPACE), borrower("b", cpu=4)),),
        want=["mine", "b"],
    ),
    "pods that the same pods do not keep away are looked at by themselves": Case(
        pods=(waiting("kept", since=-900, labels={"app": "db"}, cpu=4), waiting(cpu=4)),
        settings=PolicySettings(max_victims=1),
        nodes=(lent("n", tiny("a", cpu=0, anti_affinity=TO_DATABASES), borrower("b", cpu=4)),),
        want=["mine", "b"],
    ),
    "the most important pod begins, then the one that has waited longest": Case(
        pods=(
            waiting("young", since=-500),
            waiting("old", since=-700),
            waiting("older", since=-900, is_due=False),
        ),
        want=["old", "c"],
    ),
    "a pod that gets no room does not keep the next from a round": Case(
        pods=(waiting("large", since=-900, cpu=4), waiting("same", since=-800, cpu=4), waiting()),
        want=["mine", "c"],
    ),
    "a pod for which others leave begins no second round": Case(
        nodes=(lent("n", leaving("a", "mine"), borrower("b"), borrower("c"), borrower("d")),)
    ),
    "another pod does not count on the room that they leave": Case(
        pods=(waiting(), waiting("second", since=-400)),
        nodes=(
            lent(
                "n", leaving("a", "mine"), borrower("b"), borrower("c"), borrower("d", started=-9)
            ),
        ),
        want=["second", "d"],
    ),
    "another pod waits until they are notified": Case(
        pods=(waiting(), waiting("second", since=-400)),
        nodes=(
            lent(
                "n",
                leaving("a", "mine", only_marked=True),
                borrower("b"),
                borrower("c"),
                borrower("d"),
            ),
        ),
    ),
    "another pod does not take room to which one is nominated": Case(
        pods=(waiting("first", is_due=False, nominated_node="n"), waiting(cpu=2)),
        nodes=(lent("n", borrower("a", cpu=2), borrower("b", started=-60)),),
        want=["mine", "a"],
    ),
    "a gang begins a round if all of it gets room": Case(
        pods=(waiting("g-0", gang=GANG), waiting("g-1", gang=GANG, is_due=False)),
        nodes=(lent("n", *(borrower(name, started=-60) for name in "abcd")),),
        want=["g-0", "c", "d"],
    ),
    "a gang that does not fit is planned once, and takes nothing": Case(
        pods=tuple(waiting(f"g-{number}", cpu=3, gang=GANG) for number in range(2)),
    ),
    "while a gang gets room no other round begins": Case(
        pods=(waiting("g-0", gang=GANG, is_due=False), waiting()),
        nodes=(lent("n", leaving("a", "g-0"), borrower("b"), borrower("c"), borrower("d")),),
    ),
    "a borrower that has not left within the ceiling holds up no other round": Case(
        nodes=(
            lent(
                "n",
                borrower(
                    "stuck",
                    cpu=3,
                    is_leaving=True,
                    notified=False,
                    is_being_deleted=True,
                    release_expected_at=after(-DEFAULTS.ceiling_seconds - 1),
                    preemptor_uid="mine",
                ),
                borrower("b"),
            ),
        ),
        want=["mine", "b"],
    ),
    "nor does one that leaves for a gang": Case(
        pods=(waiting("g-0", gang=GANG, is_due=False), waiting()),
        nodes=(
            lent(
                "n",
                borrower(
                    "stuck",
                    cpu=3,
                    is_leaving=True,
                    is_held_by_budget=True,
                    notified=False,
                    release_expected_at=after(-DEFAULTS.ceiling_seconds - 1),
                    preemptor_uid="g-0",
                ),
                borrower("b"),
            ),
        ),
        want=["mine", "b"],
    ),
    "a pod that never preempts begins no round": Case(pods=(waiting(never_preempts=True),)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_which_borrowers_leave_for_which_pod(case: Case) -> None:
    snapshot = a_snapshot(*case.nodes).with_settings(case.settings).build()
    assert decide(*case.pods, snapshot=snapshot) == case.want


@pytest.mark.parametrize(("limit", "want"), [(1, []), (2, ["second", "d"])])
def test_pods_for_which_others_leave_count_against_their_quota(limit: int, want: list[str]) -> None:
    key = (HOME, "own")
    quota = Quota(
        namespace=HOME,
        name="own",
        min_amounts={},
        max_amounts=amounts(cpu=limit),
        used={},
        non_preemptible_used={},
        non_preemptible_request={},
        namespaces=(),
    )
    node_info = lent(
        "n", leaving("a", "mine"), borrower("b"), borrower("c"), borrower("d", started=-9)
    )
    snapshot = replace(a_snapshot(node_info).build(), quotas={key: quota})
    pods = waiting(quota=key), waiting("second", since=-400, quota=key)
    assert decide(*pods, snapshot=snapshot) == want


def test_a_gang_of_borrowers_leaves_as_a_unit_with_its_pods_on_other_nodes() -> None:
    gang = GangKey("team", "ddp")
    here, there = (borrower(name, cpu=4, gang=gang) for name in ("here", "there"))
    snapshot = a_snapshot(lent("n", here), a_node_info("m", there)).with_gang("ddp").build()
    snapshot = replace(snapshot, nodes={"n": snapshot.nodes["n"]})
    assert decide(waiting(), snapshot=snapshot) == ["mine", "here", "there"]


def test_a_gang_of_which_one_pod_is_protected_stays() -> None:
    gang = GangKey("team", "ddp")
    here = borrower("here", cpu=4, gang=gang)
    kept = borrower("kept", gang=gang, is_non_preemptible=True)
    snapshot = a_snapshot(lent("n", here), a_node_info("m", kept)).with_gang("ddp").build()
    assert decide(waiting(), snapshot=replace(snapshot, nodes={"n": snapshot.nodes["n"]})) == []


def test_a_decision_looks_for_room_for_so_many_kinds_of_pods_and_the_next_one_for_others() -> None:
    """Without this, thousands of pods that all differ would hold up the other home Namespaces."""
    kinds = range(automatic_reclaim.MAX_KINDS)
    in_vain = [waiting(f"large-{number}", cpu=5 + number) for number in kinds]
    pods = [*in_vain, waiting("fits", since=-400), waiting("fits-too", since=-300)]
    snapshot = a_snapshot(FULL).build()

    cut = automatic_reclaim.decide_round(ReclaimTurn(pods), snapshot)
    assert cut == RoundDecision(None, next_first=len(in_vain))
    found = automatic_reclaim.decide_round(ReclaimTurn(pods, cut.next_first), snapshot).round
    assert found is not None
    assert found.pod.uid == "fits"


def test_a_decision_about_few_kinds_of_pods_leaves_none_for_the_next_one() -> None:
    pods = [waiting(f"large-{number}", cpu=5) for number in range(100)]
    found = automatic_reclaim.decide_round(ReclaimTurn(pods), a_snapshot(FULL).build())
    assert found == RoundDecision(None, next_first=0)


def placed(pod: WaitingPod, *terms: Sequence[Requirement]) -> WaitingPod:
    """Return the pod with required node affinity: one of the terms."""
    constraints = SchedulingConstraints(node_affinity_terms=tuple(map(NodeAffinityTerm, terms)))
    demand = replace(pod.preemptor.demand, constraints=constraints)
    return replace(pod, preemptor=replace(pod.preemptor, demand=demand))


def on_node(pod: WaitingPod, value: str) -> WaitingPod:
    return placed(pod, [Requirement("pool", "In", (value,))])


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes with which the constraints of a pod were compared, once each time."""
    nodes: list[str] = []
    compare = node_fit.satisfies_constraints

    def count(constraints: SchedulingConstraints, node_info: NodeInfo) -> bool:
        nodes.append(node_info.name)
        return compare(constraints, node_info)

    monkeypatch.setattr(node_fit, "satisfies_constraints", count)
    return nodes


def test_pods_that_may_run_on_the_same_nodes_are_compared_with_each_node_once(
    compared: list[str],
) -> None:
    """Without this, thousands of equal pods would hold up the other home Namespaces for minutes."""
    turn = ReclaimTurn(
        [on_node(waiting(f"p-{number}", cpu=1 + number % 9), "no") for number in range(99)]
    )
    nodes = [lent("m"), FULL]
    assert not any(map(turn.may_run_on, nodes))
    assert automatic_reclaim.decide_round(turn, a_snapshot(*nodes).build()) == RoundDecision()
    assert compared == ["m", "n"]


ONE = Requirement("pool", "Exists")
MANY_ENTRIES = {
    "terms": [[ONE]] * 51,
    "requirements": [[ONE] * 100],
    "values": [[Requirement("pool", "NotIn", tuple(map(str, range(2001))))]],
}


@pytest.mark.parametrize("terms", MANY_ENTRIES.values(), ids=MANY_ENTRIES)
def test_a_pod_with_very_much_node_affinity_is_not_compared_and_begins_no_round(
    terms: Sequence[Sequence[Requirement]], compared: list[str]
) -> None:
    node_info = replace(FULL, labels={"pool": "x"})
    turn = ReclaimTurn([placed(waiting(), *terms)])
    assert not turn.may_run_on(node_info)
    assert automatic_reclaim.decide_round(turn, a_snapshot(node_info).build()).round is None
    assert compared == []


def test_a_gang_with_such_a_pod_takes_nothing(compared: list[str]) -> None:
    gang = [waiting("g-0", gang=GANG), waiting("g-1", gang=GANG, is_due=False)]
    snapshot = a_snapshot(FULL).build()
    assert decide(*gang, snapshot=snapshot)
    compared.clear()
    large = placed(gang[1], *([[Requirement("pool", "DoesNotExist")]] * 51))
    assert decide(gang[0], large, snapshot=snapshot) == []
    assert compared == ["n"]


def test_a_decision_looks_at_so_many_placements_and_the_next_one_at_others(
    compared: list[str],
) -> None:
    """Without this, pods that all say something else would hold up the other home Namespaces."""
    most = automatic_reclaim.MAX_KINDS
    pods = [on_node(waiting(f"p-{number}", since=-900), str(number)) for number in range(most)]
    pods += [on_node(waiting("second", since=-800), "0"), on_node(waiting("fits"), "x")]
    node_info = replace(FULL, labels={"pool": "x"})

    cut = ReclaimTurn(pods)
    assert not cut.may_run_on(node_info)
    assert len(compared) == most
    assert cut.next_first() == most + 1
    snapshot = a_snapshot(node_info).build()
    assert automatic_reclaim.decide_round(cut, snapshot) == RoundDecision(None, most + 1)

    turn = ReclaimTurn(pods, cut.next_first())
    assert turn.may_run_on(node_info)
    found = automatic_reclaim.decide_round(turn, snapshot).round
    assert found is not None
    assert found.pod.uid == "fits"


def test_no_gang_is_divided_between_two_decisions() -> None:
    """Without this, none of its pods would find all nodes that the gang needs."""
    pods = [
        on_node(waiting(f"p-{number:02}", since=-900), str(number))
        for number in range(automatic_reclaim.MAX_KINDS - 1)
    ]
    gang = [on_node(waiting(name, gang=GANG), name) for name in ("g-0", "g-1")]
    first = ReclaimTurn([*pods, *gang])
    assert [each.uid for each in first.pods] == [each.uid for each in pods]
    second = ReclaimTurn([*pods, *gang], first.next_first())
    assert [each.uid for each in second.pods[:2]] == ["g-0", "g-1"]


def test_a_gang_of_very_many_placements_does_not_keep_the_next_pods_from_their_turn() -> None:
    number = automatic_reclaim.MAX_KINDS + 1
    gang = [on_node(waiting(f"g-{each:02}", gang=GANG), str(each)) for each in range(number)]
    turn = ReclaimTurn(gang)
    assert len(turn.pods) == turn.next_first() == number - 1


def test_the_pods_of_a_gang_are_looked_at_with_the_most_important_of_them() -> None:
    pods = [
        waiting("late", since=-400, gang=GANG),
        waiting("middle", since=-500),
        waiting("early", since=-600, gang=GANG),
    ]
    assert [each.uid for each in ReclaimTurn(pods).pods] == ["early", "late", "middle"]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The pods that were compared with the anti-affinity of a node."""
    names: set[str] = set()
    find = select_victims.repelling_pods

    def count(node_info: NodeInfo, eligibility: Any) -> Any:
        names.add(eligibility.preemptor.name)
        return find(node_info, eligibility)

    monkeypatch.setattr(select_victims, "repelling_pods", count)
    return names


def labelled(number: int, key: str) -> WaitingPod:
    return waiting(f"p-{number:03}", cpu=9, labels={key: str(number)})


KEEPING_AWAY = lent("n", borrower("a", anti_affinity=TO_DATABASES))


def test_of_pods_that_differ_in_labels_that_do_not_matter_one_is_compared(looks: set[str]) -> None:
    """Without this, pods with many labels would take as long as those with many terms."""
    pods = [labelled(number, "number") for number in range(200)]
    assert decide(*pods, snapshot=a_snapshot(KEEPING_AWAY).build()) == []
    assert looks == {"p-000"}


def test_of_pods_that_differ_in_labels_that_matter_so_many_are_compared(looks: set[str]) -> None:
    most = automatic_reclaim.MAX_LOOKS
    pods = [labelled(number, "app") for number in range(most + 9)]
    decided = automatic_reclaim.decide_round(ReclaimTurn(pods), a_snapshot(KEEPING_AWAY).build())
    assert decided == RoundDecision(None, next_first=most)
    assert len(looks) == most


def a_pending_pod(
    *conditions: Condition, nominated: str | None = None, spec: PodSpec | None = None
) -> Pod:
    return Pod(
        metadata=ObjectMeta(namespace=HOME, name="p", uid="p"),
        spec=spec or PodSpec(),
        status=PodStatus(phase="Pending", conditions=conditions, nominatedNodeName=nominated),
    )


def not_scheduled(
    reason: str = "Unschedulable", at: str | None = "2026-11-21T11:59:00Z"
) -> Condition:
    return Condition(type="PodScheduled", status="False", reason=reason, lastTransitionTime=at)


TURNED_AWAY = {
    "a pod without a node": (a_pending_pod(not_scheduled()), after(-60)),
    "a new pod": (a_pending_pod(), None),
    "a pod that a gate holds": (a_pending_pod(not_scheduled("SchedulingGated")), None),
    "a pod that was gated after it was turned away": (
        a_pending_pod(
            not_scheduled(), spec=PodSpec(schedulingGates=(NameOnly(name="example.com/hold"),))
        ),
        None,
    ),
    "a pod whose scheduler failed": (a_pending_pod(not_scheduled("SchedulerError")), None),
    "a pod for which pods leave another node": (
        a_pending_pod(not_scheduled(), nominated="other"),
        None,
    ),
    "a pod that runs": (
        a_pending_pod(not_scheduled(), spec=PodSpec(nodeName="n")),
        None,
    ),
    "a condition without a time": (a_pending_pod(not_scheduled(at=None)), None),
}


@pytest.mark.parametrize(("pod", "want"), TURNED_AWAY.values(), ids=TURNED_AWAY)
def test_since_when_a_pod_is_turned_away(pod: Pod, want: datetime | None) -> None:
    assert automatic_reclaim.turned_away_at(pod) == want


@pytest.mark.parametrize(
    ("turned_away", "last_round", "want"),
    [
        pytest.param(None, None, False, id="it is not turned away"),
        pytest.param(-299, None, False, id="not for long enough"),
        pytest.param(-300, None, True, id="for long enough"),
        pytest.param(-900, -299, False, id="its last round began a moment ago"),
        pytest.param(-900, -300, True, id="its last round was in vain"),
    ],
)
def test_when_a_pod_is_due(
    turned_away: float | None, last_round: float | None, *, want: bool
) -> None:
    times = [None if seconds is None else after(seconds) for seconds in (turned_away, last_round)]
    assert automatic_reclaim.is_due(times[0], times[1], DEFAULTS, NOW) is want


def metadata(namespace: str = "team", **fields: object) -> ObjectMeta:
    return replace(ObjectMeta(namespace=namespace, name="p"), **fields)  # type: ignore[arg-type]


DAEMON = OwnerReference(
    apiVersion="apps/v1", kind="DaemonSet", name="logs", uid="u", controller=True
)
MADE_UP = replace(DAEMON, apiVersion="made-up.example.com/v1")
STAYS: Mapping[str, tuple[ObjectMeta, bool]] = {
    "a pod of another Namespace": (metadata(), False),
    "a pod of the home Namespace": (metadata(HOME), True),
    "a DaemonSet's pod": (metadata(ownerReferences=(DAEMON,)), True),
    "a pod that names a DaemonSet of a made-up group": (
        metadata(ownerReferences=(MADE_UP,)),
        False,
    ),
    "a static pod": (metadata(annotations={"kubernetes.io/config.mirror": "x"}), True),
    "a pod of kube-system": (metadata("kube-system"), True),
}


@pytest.mark.parametrize(("found", "stays"), STAYS.values(), ids=STAYS)
def test_which_pods_of_a_lent_node_are_no_borrowers(found: ObjectMeta, *, stays: bool) -> None:
    pod = automatic_reclaim.borrower_of(borrower("p"), found, HOME)
    assert pod == with_fields(borrower("p"), is_non_preemptible=stays)


def test_a_pod_of_the_home_namespace_takes_back_nodes_in_its_class() -> None:
    labels = {keys.PREEMPTION_CLASS: "2", keys.POD_GROUP: "train"}
    pod = replace(a_pending_pod(), metadata=metadata(HOME, uid="p", labels=labels))
    found = automatic_reclaim.home_preemptor_of(pod, Facts())
    assert (found.takes_back_nodes, found.preemption_class) == (True, 2)
    assert found.gang == GangKey(HOME, "train")


@pytest.mark.parametrize("quotas", [(), (a_quota("q", HOME, HOME),)], ids=["no quota", "a quota"])
def test_the_pods_of_a_batch_job_are_placed_one_by_one(quotas: Sequence[Quota]) -> None:
    """Without this, a Job that does not fit as a whole would take back no node."""
    pod = replace(a_pending_pod(), metadata=metadata(HOME, uid="p", labels={keys.JOB: "sweep"}))
    found = automatic_reclaim.home_preemptor_of(pod, Facts(quotas=Quotas(quotas)))
    assert found.gang is None
    assert (found.quota is None) is (not quotas)


def test_the_pods_of_a_batch_job_that_declares_a_gang_are_placed_together() -> None:
    own = metadata(
        HOME, uid="p", labels={keys.JOB: "train"}, annotations={keys.DISRUPTION_MODE: "gang"}
    )
    pod = replace(a_pending_pod(), metadata=own)
    assert automatic_reclaim.home_preemptor_of(pod, Facts()).gang == GangKey(HOME, "job/train")


def test_only_nodes_that_a_due_pod_may_run_on_are_read() -> None:
    tainted = replace(FULL, taints=(Taint(keys.HOME_NAMESPACE, HOME, "NoSchedule"),))
    assert ReclaimTurn([waiting()]).may_run_on(FULL)
    assert not ReclaimTurn([waiting()]).may_run_on(tainted)
    assert ReclaimTurn([waiting(), tolerant()]).may_run_on(tainted)
    assert not ReclaimTurn([waiting(is_due=False)]).may_run_on(FULL)
    assert not ReclaimTurn([waiting(depends_on_other_pods=True)]).may_run_on(FULL)


@pytest.mark.parametrize(
    ("tries", "seconds"), [(1, 0), (2, 60), (3, 120), (4, 240), (5, 300), (99, 300)]
)
def test_the_pause_after_decisions_without_a_round_grows(tries: int, seconds: float) -> None:
    assert automatic_reclaim.pause_seconds(tries, 30) == seconds


def test_pods_that_all_differ_are_not_compared_with_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each decision is expensive enough; the comparisons would grow with the square of the pods."""
    pods = [waiting(f"pod-{number}", cpu=100 + number) for number in range(50)]
    compared = 0

    def count(self: Preemptor, other: object) -> bool:
        nonlocal compared
        compared += 1
        return self is other

    monkeypatch.setattr(Preemptor, "__eq__", count)
    assert decide(*pods, snapshot=a_snapshot(FULL).build()) == []
    assert compared <= len(pods)


def test_one_decision_is_enough_for_pods_that_differ_only_in_how_long_they_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    decide_for = selection.decide

    def count(preemptor: Preemptor, *rest: Any) -> Any:
        asked.append(preemptor.name)
        return decide_for(preemptor, *rest)

    monkeypatch.setattr(selection, "decide", count)
    waits = {"old": -900, "middle": -700, "new": -600}
    pods = [
        waiting(name, since=since, cpu=9, unschedulable_since=after(since))
        for name, since in waits.items()
    ]
    assert decide(*pods, snapshot=a_snapshot(FULL).build()) == []
    assert asked == ["old"]
