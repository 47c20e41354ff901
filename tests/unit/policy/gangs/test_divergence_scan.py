"""Which gangs diverge, found from pods that come one after another, with one record a gang."""

from reprieve_policy import keys
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import divergence_scan
from reprieve_policy.gangs.divergence_scan import DivergenceScan
from reprieve_policy.kube.objects import pod_views
from reprieve_testing.objects.builders import PodBuilder, a_pod

FACTS = Facts()


def called(*pods: PodBuilder, priorities: dict[str, int] | None = None) -> DivergenceScan[str]:
    call: DivergenceScan[str] = DivergenceScan(priorities)
    for number, pod in enumerate(pods):
        (view,) = pod_views(pod.build())
        call.add_pod(f"pod-{number}", view, FACTS)
    return call


def test_pods_that_agree_are_one_record_without_a_witness() -> None:
    call = called(*[a_pod().in_gang("a")] * 1000)
    (entry,) = call.gangs.values()
    assert (entry.gang.name, entry.differing, entry.first_differing_pod) == ("a", set(), None)


def test_the_first_differing_pod_and_all_differences_are_recorded() -> None:
    member = a_pod().in_gang("a")
    call = called(member, member.in_class(5), member, member.labelled(keys.PREEMPTIBLE, "false"))
    (entry,) = call.gangs.values()
    assert entry.first_differing_pod == "pod-1"
    assert entry.differing == {"preemption_class", "preemptible"}


def test_gangs_do_not_mix_and_pods_of_none_are_no_gang() -> None:
    call = called(a_pod().in_gang("a"), a_pod().in_gang("b").in_class(5), a_pod().in_class(3))
    assert {entry.gang.name: entry.first_differing_pod for entry in call.gangs.values()} == {
        "a": None,
        "b": None,
    }


def test_a_job_s_pods_are_not_called() -> None:
    assert called(a_pod().labelled(keys.JOB, "a")).gangs == {}


def test_pods_of_another_priority_than_their_native_group_are_counted() -> None:
    low, high = (
        a_pod().in_native_gang("g").with_priority(0),
        a_pod().in_native_gang("g").with_priority(9),
    )
    (entry,) = called(low, high, high, priorities={"g": 0}).gangs.values()
    assert entry.priority_mismatches == 2


def test_pods_of_a_native_group_without_a_priority_are_not_counted() -> None:
    (entry,) = called(a_pod().in_native_gang("g").with_priority(9)).gangs.values()
    assert entry.priority_mismatches == 0


def test_a_label_that_names_a_native_group_makes_no_member() -> None:
    (entry,) = called(a_pod().in_gang("g").with_priority(9), priorities={"g": 0}).gangs.values()
    assert entry.priority_mismatches == 0


def test_metadata_shows_every_gang_except_native_ones() -> None:
    pods = {"label": a_pod().in_gang("a"), "job": a_pod().labelled(keys.JOB, "a"), "none": a_pod()}
    views = {name: next(pod_views(pod.build())) for name, pod in pods.items()}
    assert {name for name, view in views.items() if divergence_scan.is_gang_member(view)} == {
        "label"
    }


def test_a_disruption_mode_that_cannot_be_read_is_none_and_is_not_kept() -> None:
    member = a_pod().in_gang("a")
    call = called(member.annotated(keys.DISRUPTION_MODE, "x" * 200_000), member)
    (entry,) = call.gangs.values()
    assert (entry.traits.disruption_mode, entry.differing) == ("", set())
