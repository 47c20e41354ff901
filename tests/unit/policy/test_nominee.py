"""Whom a victim makes room for."""

from dataclasses import replace

from reprieve_policy import nominee
from reprieve_policy.nominee import Nominee
from reprieve_testing.builders import a_pod


def a_nominee(
    uid: str, priority: int | None, node: str = "here", *, created: str = "", leaves: bool = False
) -> Nominee:
    pod = a_pod().with_uid(uid).build()
    pod = replace(pod, metadata=replace(pod.metadata, creationTimestamp=created or None))
    if priority is not None:
        assert pod.spec is not None
        pod = replace(pod, spec=replace(pod.spec, priority=priority))
    return Nominee(pod=pod, node=node, is_leaving=leaves)


def inferred(*nominees: Nominee) -> str | None:
    found = nominee.infer(nominees, "here", victim_priority=100)
    return None if found is None else found.uid


def test_the_highest_priority_wins_then_the_oldest_then_any_but_always_the_same() -> None:
    young = a_nominee("a", 200, created="2026-11-21T12:00:01Z")
    old = a_nominee("b", 200, created="2026-11-21T12:00:00Z")
    assert inferred(young, old, a_nominee("c", 101)) == "b"
    assert inferred(a_nominee("z", 200), a_nominee("y", 200)) == "y"


def test_whoever_could_not_have_preempted_is_not_suspected() -> None:
    assert inferred() is None
    assert inferred(a_nominee("elsewhere", 200, "there")) is None
    assert inferred(a_nominee("equal", 100), a_nominee("none", None)) is None
    assert inferred(a_nominee("leaving", 200, leaves=True)) is None
