"""Which objects wait after a call that got no answer, or a slow one."""

import contextlib

import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.namespace_rests import NamespaceRests
from reprieve_runtime.client.api import ApiError


class Rests:
    """The objects `one`, `two` and `three` of a Namespace, and a clock that the test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.rests = NamespaceRests(Clock(monotonic=lambda: self.seconds))

    def round(self, *hanging: str) -> list[str]:
        """Try all objects once; return those that were tried. A hanging call takes ten seconds."""
        tried = [uid for uid in ("one", "two", "three") if self._try(uid, hanging)]
        self.rests.end_round()
        return tried

    def _try(self, uid: str, hanging: tuple[str, ...]) -> bool:
        if not self.rests.is_due("team", uid):
            return False
        if uid in hanging:
            self.seconds += 10
            self.rests.begin("team", uid, self.seconds - 10)
        return True


def test_a_namespace_rests_five_times_as_long_as_its_call_waited_and_the_others_do_not() -> None:
    team = Rests()
    assert team.round("one") == ["one"]
    assert team.rests.is_due("other", "four")
    team.seconds += 49.9
    assert team.round() == []
    team.seconds += 0.1
    assert team.round() == ["two", "three"]


def test_an_object_that_never_gets_an_answer_keeps_no_other_from_being_tried() -> None:
    team = Rests()
    tried = []
    for _ in range(4):
        tried.append(team.round("one", "two"))
        team.seconds += 60
    assert tried == [["one"], ["two"], ["three"], ["one"]]


def test_the_last_object_of_a_namespace_is_tried_again_as_soon_as_the_rest_is_over() -> None:
    team = Rests()
    assert team.round("three") == ["one", "two", "three"]
    team.seconds += 50
    assert team.round() == ["one", "two", "three"]


def test_a_call_that_hung_for_an_hour_has_its_namespace_rest_for_a_minute() -> None:
    team = Rests()
    team.seconds = 3600
    team.rests.begin("team", "one", 0.0)
    team.seconds += 60
    assert team.rests.is_due("team", "two")


CALLS = {
    "allowed after 9 s": (9.0, 200, 45.0),
    "denied after 9 s": (9.0, 500, 45.0),
    "refused at once as one too many": (0.0, 429, 5.0),
    "answered at once by a webhook that says that it is busy": (0.0, 503, 5.0),
    "denied at once": (0.0, 403, 0.0),
    "allowed at once": (0.5, 200, 0.0),
}


@pytest.mark.parametrize(("seconds", "status", "rest"), CALLS.values(), ids=CALLS)
def test_a_namespace_rests_after_a_slow_call_and_after_one_that_is_refused_as_an_overload(
    seconds: float, status: int, rest: float
) -> None:
    team = Rests()
    team.seconds = 1000.0
    with contextlib.suppress(ApiError), team.rests.noting_slow("team", "one"):
        team.seconds += seconds
        if status != 200:
            raise ApiError(status, "Refused", "no")
    team.seconds += rest
    assert team.rests.is_due("team", "two")
    team.seconds -= 0.1
    assert team.rests.is_due("team", "two") == (rest == 0.0)
