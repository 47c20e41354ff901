"""Several ranks agree on one step, with a stand-in for the group of a framework.

The frameworks' own groups: `test_frameworks.py`.
"""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

import reprieve_client as reprieve
from reprieve_client.agreement import AllRanks
from reprieve_client.contract import Request
from reprieve_testing.ranks import Group

SECONDS = 30.0


class Rank:
    """A rank that takes steps, is asked after one of them, and may fail to save."""

    def __init__(
        self,
        asked_after: int | None = None,
        *,
        terminated_after: int | None = None,
        deferred: int | None = None,
        first: int = 0,
        saves_to: str | None = None,
    ) -> None:
        self.saves: list[int] = []
        self.fails = 0
        self.answer: dict[str, object] = {}
        self.last_step = 0
        self._asked_after = asked_after
        self._terminated_after = terminated_after
        self._deferred = deferred
        self._first = first
        self._saves_to = saves_to

    def run(self, agreement: AllRanks, total: int) -> None:
        session = reprieve.checkpointing(self._save, agreement=agreement)
        with contextlib.suppress(SystemExit), session:
            for step in range(self._first + 1, total + 1):
                self.last_step = step
                if step == self._terminated_after:
                    session.note_termination()
                if step == self._asked_after:
                    session._exchange.ask(Request("uid-1"))
                session.step(step, defer_seconds=30 if step == self._deferred else None)
        self.answer = session._exchange.answer

    def _save(self, step: int) -> str | None:
        if self.fails:
            self.fails -= 1
            raise OSError("no space left")
        self.saves.append(step)
        return self._saves_to


def run(*ranks: Rank, total: int = 10, every: int = 1) -> None:
    group = Group(len(ranks))
    with ThreadPoolExecutor(len(ranks)) as pool:
        futures = [
            pool.submit(rank.run, group.agreement(number, every), total)
            for number, rank in enumerate(ranks)
        ]
        for future in futures:
            future.result(SECONDS)


def test_all_ranks_save_after_the_step_at_which_one_is_asked() -> None:
    ranks = [Rank(), Rank(asked_after=4), Rank()]
    run(*ranks)
    assert [rank.saves for rank in ranks] == [[4]] * 3


def test_ranks_that_talk_every_few_steps_save_when_they_talk() -> None:
    ranks = [Rank(asked_after=2), Rank()]
    run(*ranks, every=5)
    assert [rank.saves for rank in ranks] == [[5]] * 2


def test_ranks_that_are_behind_save_at_the_step_of_the_one_ahead() -> None:
    ranks = [Rank(first=2), Rank(asked_after=3, first=0), Rank(first=1)]
    run(*ranks)
    # They talk at their third call: then they are at 5, 3 and 4.
    assert [rank.saves for rank in ranks] == [[5]] * 3


def test_a_rank_that_defers_at_the_step_of_the_one_ahead_has_all_ranks_save_later() -> None:
    ranks = [Rank(first=1, asked_after=5), Rank(deferred=5), Rank()]
    run(*ranks)
    assert [rank.saves for rank in ranks] == [[5, 6], [6], [5, 6]]
    assert ranks[0].answer == {"state": "saved", "id": "uid-1", "step": 6}


def test_only_the_rank_that_was_asked_answers_and_it_hands_over_the_path_of_any() -> None:
    ranks = [Rank(saves_to="/checkpoints/step-4"), Rank(asked_after=4)]
    run(*ranks)
    assert ranks[0].answer == {"state": "idle"}
    assert ranks[1].answer == {
        "state": "saved",
        "id": "uid-1",
        "step": 4,
        "path": "/checkpoints/step-4",
    }


def test_nothing_counts_as_saved_until_all_ranks_have_saved() -> None:
    ranks = [Rank(), Rank(asked_after=4)]
    ranks[0].fails = 1
    run(*ranks)
    assert [rank.saves for rank in ranks] == [[5], [4, 5]]
    assert ranks[1].answer["step"] == 5


def test_what_every_rank_fails_to_save_is_given_up_by_all() -> None:
    ranks = [Rank(), Rank(asked_after=4)]
    ranks[0].fails = 3
    run(*ranks)
    assert ranks[1].answer == {
        "state": "cannot",
        "id": "uid-1",
        "message": "rank 0: OSError: no space left",
    }


def test_a_rank_that_is_terminated_stays_until_all_have_saved() -> None:
    ranks = [Rank(terminated_after=2), Rank()]
    run(*ranks, every=5, total=8)
    assert [rank.saves for rank in ranks] == [[5]] * 2
    assert [rank.last_step for rank in ranks] == [5, 8]


def test_a_rank_that_skips_the_agreed_step_is_an_error() -> None:
    agreement = AllRanks(lambda _: [1, 5], lambda own: [own])
    assert not agreement.decide(3, is_wanted=True)
    with pytest.raises(RuntimeError, match="save at step 5, which 6 has skipped"):
        agreement.decide(6, is_wanted=False)


def test_ranks_talk_at_least_every_so_many_steps() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        AllRanks(lambda _: [0, 0], lambda own: [own], every=0)
