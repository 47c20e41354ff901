"""Victims are chosen by upstream's rule, but for the differences that have a name; `tests/differential` asks upstream itself."""

import pytest

from reprieve_testing.builders import NOW
from reprieve_testing.differential import core, flavours, generator, rule
from reprieve_testing.differential.difference import WHY, Difference
from reprieve_testing.differential.published import HIGH, UseCase, use_cases
from reprieve_testing.differential.scene import (
    MINIMUM,
    SECONDS,
    Scenario,
    ScenarioNode,
    ScenarioOutcome,
    ScenarioPod,
    ScenarioPriorityClass,
)
from reprieve_testing.differential.shown import EXAMPLES

SEED = 2026
SCENES = [*generator.scenarios(120, SEED), *flavours.variants(12, SEED)]


@pytest.mark.parametrize("case", tuple(use_cases()), ids=lambda case: case.sentence)
def test_published_use_cases_have_the_published_outcome(case: UseCase) -> None:
    assert rule.decide(case.scene) == core.decide(case.scene, NOW) == case.outcome


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_the_core_decides_by_upstreams_rule_and_the_named_differences(scene: Scenario) -> None:
    if rule.has_room(scene):
        # Then no scheduler asks.
        assert rule.decide(scene, rule.REPRIEVE) == rule.decide(scene)
    else:
        assert core.decide(scene, NOW) == rule.decide(scene, rule.REPRIEVE)


@pytest.mark.parametrize(("seconds", "is_taken"), [(599, False), (600, True), (601, True)])
def test_a_toleration_ends_at_the_very_second(seconds: int, is_taken: bool) -> None:  # noqa: FBT001 - a row of the table
    # Too fine for schedulers that run, so only here: upstream's `After` is false where both are the same.
    named = ScenarioPriorityClass(value=8000, annotations={MINIMUM: "10000", SECONDS: "600"})
    node = ScenarioNode(
        name="n0", cpu=1, pods=(ScenarioPod(name="a", priority_class=named, scheduled_ago=seconds),)
    )
    scene = Scenario(
        name="end", preemptor=ScenarioPod(name="preemptor", priority_class=HIGH), nodes=(node,)
    )
    wanted = ScenarioOutcome("n0", frozenset({"a"})) if is_taken else ScenarioOutcome()
    assert rule.decide(scene) == core.decide(scene, NOW) == wanted


@pytest.mark.parametrize("difference", Difference)
def test_each_difference_has_a_reason_and_shows_by_itself(difference: Difference) -> None:
    shown = EXAMPLES[difference]
    assert WHY[difference]
    assert shown.upstream != shown.reprieve
    assert rule.decide(shown.scene) == shown.upstream
    by_itself = [
        one for one in Difference if rule.decide(shown.scene, frozenset({one})) == shown.reprieve
    ]
    assert by_itself == [difference]
    assert core.decide(shown.scene, NOW) == shown.reprieve


def test_scenes_are_about_tolerations() -> None:
    without = [
        scene
        for scene in SCENES
        if rule.decide(scene) != rule.decide(generator.without_tolerations(scene))
    ]
    assert len(without) > len(SCENES) / 6
