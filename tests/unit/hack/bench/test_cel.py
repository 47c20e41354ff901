"""`make bench-cel`: ratios of one round, turns that cannot be compared, and equal contenders."""

from __future__ import annotations

import pytest

from bench.cel import __main__ as command
from bench.cel import contenders, table
from bench.cel.table import CelTurn
from realcluster.errors import ClusterError
from reprieve_policy import keys
from reprieve_policy.admission import fields
from reprieve_policy.config.settings import PolicySettings

NOTHING, BY_HAND, OVERLAY = contenders.NOTHING, contenders.BY_HAND, contenders.OVERLAY


def a_turn(contender: str, number: int, microseconds: float, *, calls: int = 0) -> CelTurn:
    return CelTurn(
        contender=contender,
        pods="a class",
        round=number,
        count=100,
        calls=calls,
        seconds={**dict.fromkeys(table.KINDS, 0.0), table.KINDS[2]: microseconds * 100 / 1e6},
        allocations={table.KINDS[2]: round(microseconds) * 1000},
        bytes={table.KINDS[2]: round(microseconds) * 10_000},
    )


def test_a_ratio_is_of_what_is_added_in_the_same_round() -> None:
    # The machine was ten times slower in the second round, for all.
    turns = [
        *(a_turn(NOTHING, 1, 2), a_turn(BY_HAND, 1, 12), a_turn(OVERLAY, 1, 7)),
        *(a_turn(NOTHING, 2, 20), a_turn(BY_HAND, 2, 120), a_turn(OVERLAY, 2, 70)),
    ]
    found = {row.contender: row for row in table.rows(turns, NOTHING, BY_HAND)}

    assert {name: row.ratio for name, row in found.items()} == pytest.approx(
        {NOTHING: 0, BY_HAND: 1, OVERLAY: 0.5}
    )
    assert found[OVERLAY].all_microseconds == pytest.approx(38.5)
    assert (found[OVERLAY].allocations, found[OVERLAY].bytes) == (50, 500)
    assert "0.50" in table.table(found.values())


def test_the_second_turn_of_a_plugin_counts_as_the_first() -> None:
    (once, kind) = a_turn(OVERLAY, 1, 5), table.KINDS[0]
    twice = CelTurn(
        **vars(once) | {"seconds": {**once.seconds, kind: 1e-4, kind + table.AGAIN: 3e-4}}
    )
    (row, _) = table.rows([twice, a_turn(NOTHING, 1, 2)], NOTHING, BY_HAND)
    assert row.microseconds[kind] == pytest.approx(4)
    assert row.all_microseconds == pytest.approx(9)


def test_a_contender_that_calls_a_webhook_is_not_compared() -> None:
    turns = [a_turn(NOTHING, 1, 2), a_turn(contenders.WEBHOOKS, 1, 9, calls=100)]
    assert [row.contender for row in table.rows(turns, NOTHING, BY_HAND)] == [NOTHING]
    assert table.left_out(turns, "a class") == [contenders.WEBHOOKS]
    assert table.left_out(turns, "no class") == []


def an_outcome(
    given_class: str | None, refused: str = "", contender: str = BY_HAND, calls: int = 0
) -> object:
    labels = {} if given_class is None else {keys.PREEMPTION_CLASS: given_class}
    return {"contender": contender, "refused": refused, "labels": labels, "calls": calls}


def test_a_contender_that_is_not_in_force_ends_the_run() -> None:
    fine = [an_outcome("4"), an_outcome("11", "denied"), an_outcome(None, contender=NOTHING)]
    command.check(fine)  # type: ignore[arg-type]
    for broken in (an_outcome(None), an_outcome("11")):
        with pytest.raises(ClusterError, match="was not in force"):
            command.check([*fine, broken])  # type: ignore[list-item]


def test_a_call_of_a_webhook_that_was_not_counted_ends_the_run() -> None:
    counted, not_counted = (
        an_outcome(None, contender=contenders.WEBHOOKS, calls=calls) for calls in (1, 0)
    )
    command.check([counted])  # type: ignore[list-item]
    with pytest.raises(ClusterError, match="was not counted"):
        command.check([counted, not_counted])  # type: ignore[list-item]


def test_the_policy_by_hand_reads_every_key_that_the_overlay_checks() -> None:
    text = contenders.SAME_RULES.read_text()
    read = {field.key for field in fields.pod_fields(PolicySettings())}
    of_namespaces = {
        keys.ALLOWED_PREEMPTION_CLASSES,
        keys.DEFAULT_PREEMPTION_CLASS,
        keys.ENFORCEMENT,
        keys.WORKLOAD_TYPE,
    }
    assert [key for key in sorted(read | of_namespaces) if key not in text] == []


def test_one_kind_of_pods_says_nothing_about_preemption() -> None:
    created = contenders.created()
    (silent,) = created[contenders.SILENT]
    assert keys.PREFIX not in str(silent)
    assert all(keys.PREEMPTION_CLASS in str(pod) for pod in created[contenders.WITH_CLASS])
