"""Victims are chosen by upstream's rule, but for the differences that have a name; `tests/differential` asks upstream itself."""

import pytest

from reprieve_testing.builders import NOW
from reprieve_testing.differential import core, flavours, generator, rule
from reprieve_testing.differential.difference import WHY, Difference
from reprieve_testing.differential.published import UseCase, use_cases
from reprieve_testing.differential.scene import Scene
from reprieve_testing.differential.shown import SHOWN

SEED = 2026
SCENES = [*generator.scenes(120, SEED), *flavours.flavoured(12, SEED)]


@pytest.mark.parametrize("case", tuple(use_cases()), ids=lambda case: case.sentence)
def test_published_use_cases_have_the_published_outcome(case: UseCase) -> None:
    assert rule.decide(case.scene) == core.decide(case.scene, NOW) == case.outcome


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_the_core_decides_by_upstreams_rule_and_the_named_differences(scene: Scene) -> None:
    if rule.has_room(scene):
        # Then no scheduler asks.
        assert rule.decide(scene, rule.REPRIEVE) == rule.decide(scene)
    else:
        assert core.decide(scene, NOW) == rule.decide(scene, rule.REPRIEVE)


@pytest.mark.parametrize("difference", Difference)
def test_each_difference_has_a_reason_and_shows_by_itself(difference: Difference) -> None:
    shown = SHOWN[difference]
    assert WHY[difference]
    assert shown.upstream != shown.reprieve
    assert rule.decide(shown.scene) == shown.upstream
    assert rule.decide(shown.scene, frozenset({difference})) == shown.reprieve
    assert core.decide(shown.scene, NOW) == shown.reprieve


def test_scenes_are_about_tolerations() -> None:
    without = [scene for scene in SCENES if rule.decide(scene) != rule.decide(generator.without_tolerations(scene))]
    assert len(without) > len(SCENES) / 6
