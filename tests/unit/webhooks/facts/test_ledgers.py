"""Any user may write ledgers on their own Jobs: the memory is bounded, and each has one owner."""

import dataclasses
from datetime import UTC, datetime

from reprieve_policy.keys import LEDGER
from reprieve_policy.kube.objects import ObjectMeta, OwnerReference
from reprieve_policy.lifecycle import ledger
from reprieve_runtime.client.api import PartialObjectMetadata
from reprieve_webhooks.facts.ledgers import OVERHEAD_CHARACTERS, LedgerCache

SUBMITTED = datetime(2026, 1, 1, tzinfo=UTC)
ENTRY = ledger.LedgerEntry(preempted_count=2, first_submitted_at=SUBMITTED, eviction_ids=("one",))
TEXT = ledger.render({"": ENTRY})
LIMIT_BYTES = len(TEXT) + OVERHEAD_CHARACTERS
"""For one ledger."""


def an_owner(name: str, uid: str = "uid-1", text: str = TEXT) -> PartialObjectMetadata:
    metadata = ObjectMeta(name=name, namespace="team-a", uid=uid, annotations={LEDGER: text})
    return dataclasses.replace(PartialObjectMetadata(), metadata=metadata)


def of(ledgers: LedgerCache, name: str, uid: str = "uid-1", kind: str = "Job") -> ledger.Ledger:
    return ledgers.get(OwnerReference(kind=kind, name=name, uid=uid), "team-a")


def test_an_owner_has_its_own_ledger_and_one_created_again_has_none() -> None:
    ledgers = LedgerCache()
    ledgers.handler_for("Job")(an_owner("train"))
    assert of(ledgers, "train") == {"": ENTRY}
    assert of(ledgers, "train", uid="uid-2") == {}
    assert of(ledgers, "train", kind="StatefulSet") == {}
    assert ledgers.get(OwnerReference(kind="Job", name="train", uid="uid-1"), "team-b") == {}


def test_the_newest_ledgers_are_kept_beyond_the_limit() -> None:
    ledgers = LedgerCache(max_characters=3 * LIMIT_BYTES)
    keep = ledgers.handler_for("Job")
    for name in ("a", "b", "c", "a", "d"):
        keep(an_owner(name))
    assert [name for name in "abcd" if of(ledgers, name)] == ["a", "c", "d"]


def test_a_ledger_that_is_written_repeatedly_counts_once() -> None:
    ledgers = LedgerCache(max_characters=2 * LIMIT_BYTES)
    keep = ledgers.handler_for("Job")
    keep(an_owner("other"))
    for _ in range(100):
        keep(an_owner("train"))
    assert of(ledgers, "other")
    assert of(ledgers, "train")


def test_a_ledger_larger_than_the_limit_is_not_kept() -> None:
    ledgers = LedgerCache(max_characters=LIMIT_BYTES)
    keep = ledgers.handler_for("Job")
    keep(an_owner("train", text=TEXT + " "))
    assert of(ledgers, "train") == {}
    keep(an_owner("train"))
    assert of(ledgers, "train")


def test_a_namespace_has_a_root_owner_as_long_as_its_ledger_is_kept() -> None:
    ledgers = LedgerCache(max_characters=LIMIT_BYTES)
    ledgers.handler_for("Job")(an_owner("train"))
    assert not ledgers.has_root_owners("team-a")
    ledgers.handler_for("JobSet")(an_owner("set"))
    assert ledgers.has_root_owners("team-a")
    assert not ledgers.has_root_owners("team-b")
    ledgers.handler_for("Job")(an_owner("train"))
    assert not ledgers.has_root_owners("team-a")


def test_an_owner_that_is_gone_or_has_no_ledger_any_more_takes_no_room() -> None:
    ledgers = LedgerCache(max_characters=LIMIT_BYTES)
    ledgers.handler_for("JobSet")(an_owner("set"))
    ledgers.forgetter_for("Job")(("team-a", "set"))
    assert ledgers.has_root_owners("team-a")
    ledgers.forgetter_for("JobSet")(("team-a", "set"))
    assert not ledgers.has_root_owners("team-a")
    assert of(ledgers, "set", kind="JobSet") == {}
