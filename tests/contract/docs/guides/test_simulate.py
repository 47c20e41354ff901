"""docs/simulate.md: each reason has words. `test_transcripts.py` runs the page's commands."""

from reprieve_policy.preemption.selection import STATUS_MESSAGES, DryRunStatus


def test_every_obstacle_has_words() -> None:
    assert STATUS_MESSAGES.keys() == set(DryRunStatus)
