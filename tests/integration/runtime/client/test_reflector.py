"""One collection by list and watch, on an API server with errors and unusual answers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from reprieve_policy.kube.objects import ObjectMeta
from reprieve_runtime.client import reflector, watch_backoff
from reprieve_runtime.client.reflector import Key, Reflector
from reprieve_testing.servers.stub_api import (
    DEADLINE_SECONDS,
    END_OF_LIST,
    StubApi,
    stub_api,
    until,
)

ALL = "/api/v1/things"
WATCH = f"{ALL}?watch"


@dataclass(frozen=True, kw_only=True)
class Thing:
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    size: int = 0


def thing(name: str, size: Any, version: str = "2") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "team", "resourceVersion": version},
        "size": size,
    }


@dataclass
class Kept:
    """A reflector with its stub API server."""

    stub: StubApi
    reflector: Reflector[Thing, int]
    forgotten: list[Key]

    @property
    def sizes(self) -> Mapping[str, int]:
        return {name: size for (_, name), size in self.reflector.items.items()}

    async def follows(self, watches: int) -> None:
        await until(lambda: self.stub.calls[WATCH] == watches and self.stub.open_watches == 1)


@pytest.fixture
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_backoff, "_FIRST_SECONDS", 0.01)


@asynccontextmanager
async def kept(
    directory: Path,
    *things: dict[str, Any],
    page: int = 20,
    is_compressed: bool = False,
    is_listed: bool = True,
    absent_retry_seconds: float | None = None,
    **settings: bool,
) -> AsyncIterator[Kept]:
    by_name = {found["metadata"]["name"]: found for found in things}
    async with stub_api(directory, collections={ALL: by_name}, **settings) as (stub, api):
        forgotten: list[Key] = []
        found = Reflector(
            api,
            ALL,
            Thing,
            lambda thing: thing.size,
            on_delete=forgotten.append,
            page=page,
            is_compressed=is_compressed,
            absent_retry_seconds=absent_retry_seconds,
            absent_statuses=(403, 404),
        )
        if is_listed:
            stub.lists_released.set()
        task = asyncio.create_task(found.run())
        try:
            made = Kept(stub, found, forgotten)
            await made.follows(1)
            yield made
        finally:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled(), task.exception()


async def test_an_unreadable_object_is_skipped_and_counted_and_causes_no_new_list(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with kept(tmp_path, thing("a", 1), thing("odd", "large"), thing("c", 3)) as made:
        assert made.sizes == {"a": 1, "c": 3}
        for version in "3456":
            made.stub.send("MODIFIED", thing("odd", "large", version))
        made.stub.send("ADDED", thing("d", 4, "7"))
        await until(lambda: made.sizes == {"a": 1, "c": 3, "d": 4})
        assert made.reflector.unreadable == 1
        assert (made.stub.calls[ALL], made.stub.calls[WATCH]) == (1, 1)
        assert [record.message for record in caplog.records] == ["skipped an unreadable object"]
        made.stub.send("DELETED", thing("odd", "large", "8"))
        await until(lambda: made.reflector.unreadable == 0)
        assert made.forgotten == []


@pytest.mark.usefixtures("short_backoff")
async def test_an_object_that_becomes_unreadable_keeps_its_last_readable_version(
    tmp_path: Path,
) -> None:
    async with kept(tmp_path, thing("a", 1), thing("b", 2)) as made:
        made.stub.collections[ALL]["b"] = thing("b", None)
        made.stub.send("MODIFIED", thing("b", None, "3"))
        await until(lambda: made.reflector.unreadable == 1)
        assert made.sizes == {"a": 1, "b": 2}
        made.stub.send("ERROR", {"code": 410})
        made.stub.end_watches()
        await made.follows(2)
        assert made.sizes == {"a": 1, "b": 2}
        made.stub.send("MODIFIED", thing("b", 5, "4"))
        await until(lambda: made.sizes == {"a": 1, "b": 5})
        made.stub.send("MODIFIED", thing("a", [], "5"))
        made.stub.send("DELETED", thing("a", [], "6"))
        await until(lambda: made.sizes == {"b": 5})
        assert (made.reflector.unreadable, made.forgotten) == (0, [("team", "a")])


async def test_a_very_deep_object_does_not_end_the_program(tmp_path: Path) -> None:
    deep: Any = 0
    for _ in range(900):
        deep = [deep]
    async with kept(tmp_path, thing("a", 1) | {"spec": deep}) as made:
        made.stub.send("ADDED", thing("b", 2, "3") | {"spec": deep})
        await until(lambda: made.sizes == {"a": 1, "b": 2})


REFUSED = {
    "unreachable": (0, ""),
    "starting": (403, ""),
    "expired token": (401, ""),
    "too many requests": (429, ""),
    "etcd unavailable": (500, ""),
    "service unavailable": (503, ""),
}


@pytest.mark.parametrize("refusal", REFUSED.values(), ids=REFUSED)
@pytest.mark.usefixtures("short_backoff")
async def test_after_an_error_the_watch_resumes_from_its_last_version(
    tmp_path: Path, refusal: tuple[int, str]
) -> None:
    async with kept(tmp_path, thing("a", 1)) as made:
        made.stub.send("ADDED", thing("b", 2, "5"))
        await until(lambda: made.sizes == {"a": 1, "b": 2})
        made.stub.watches_refused = [refusal] * 3
        made.stub.end_watches()
        await made.follows(5)
        assert made.stub.watched_from == ["1", "5", "5", "5", "5"]
        assert made.stub.calls[ALL] == 1


@pytest.mark.usefixtures("short_backoff")
async def test_an_api_server_that_has_just_started_takes_nothing_of_what_an_optional_right_shows(
    tmp_path: Path,
) -> None:
    """It refuses all that its roles allow, until it has read them."""
    async with kept(tmp_path, thing("a", 1), absent_retry_seconds=1000.0) as made:
        made.stub.watches_refused = [(403, "")] * 3
        made.stub.end_watches()
        await until(lambda: not made.stub.watches_refused)
        assert made.reflector.is_served
        await made.follows(5)
        assert (made.sizes, made.forgotten, made.stub.calls[ALL]) == ({"a": 1}, [], 1)


@pytest.mark.usefixtures("short_backoff")
async def test_a_right_that_is_taken_away_for_good_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kept(tmp_path, thing("a", 1), absent_retry_seconds=0.01) as made:
        made.stub.barred = {ALL}
        made.stub.end_watches()
        await until(lambda: made.stub.calls[ALL] >= 4)
        assert (made.sizes, made.reflector.is_served) == ({"a": 1}, True)
        monkeypatch.setattr(reflector, "_FORBIDDEN_SECONDS", 0.0)
        await until(lambda: made.forgotten == [("team", "a")])
        assert (made.sizes, made.reflector.is_served) == ({}, False)
        made.stub.barred = set()
        await until(lambda: made.reflector.is_served and made.sizes == {"a": 1})


@pytest.mark.usefixtures("short_backoff")
async def test_the_time_of_refusals_begins_anew_after_a_watch(tmp_path: Path) -> None:
    async with kept(tmp_path, thing("a", 1), absent_retry_seconds=1000.0) as made:
        made.stub.watches_refused = [(403, "")]
        made.stub.end_watches()
        await made.follows(3)
        assert made.reflector._forbidden_since is not None
        made.stub.end_watches()
        await made.follows(4)
        assert made.reflector._forbidden_since is None


async def test_a_kind_that_is_removed_leaves_nothing(tmp_path: Path) -> None:
    async with kept(tmp_path, thing("a", 1), absent_retry_seconds=1000.0) as made:
        made.stub.absent = {ALL}
        made.stub.end_watches()
        await until(lambda: made.forgotten == [("team", "a")])
        assert (made.sizes, made.reflector.is_served) == ({}, False)


STALE = {
    "too old": (410, ""),
    "invalid version": (400, ""),
    "newer than a restored etcd": (504, "ResourceVersionTooLarge"),
}


@pytest.mark.parametrize("refusal", STALE.values(), ids=STALE)
@pytest.mark.usefixtures("short_backoff")
async def test_an_invalid_version_causes_a_new_list(
    tmp_path: Path, refusal: tuple[int, str]
) -> None:
    async with kept(tmp_path, thing("a", 1), thing("b", 2)) as made:
        del made.stub.collections[ALL]["b"]
        made.stub.watches_refused = [refusal]
        made.stub.end_watches()
        await made.follows(3)
        assert (made.sizes, made.forgotten) == ({"a": 1}, [("team", "b")])
        assert made.stub.calls[ALL] == 2


@pytest.mark.usefixtures("short_backoff")
async def test_a_version_with_many_errors_in_a_row_causes_a_new_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_backoff, "_LAST_SECONDS", 0.01)
    async with kept(tmp_path, thing("a", 1)) as made:
        made.stub.watches_refused = [(500, "")] * 12
        made.stub.end_watches()
        await made.follows(14)
        assert made.stub.calls[ALL] == 2


async def test_a_watch_that_always_ends_at_once_is_restarted_with_back_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    monkeypatch.setattr(watch_backoff, "_LAST_SECONDS", 0.4)
    async with kept(tmp_path, thing("a", 1)) as made:
        pause = made.reflector._backoff.next_delay
        monkeypatch.setattr(
            made.reflector._backoff, "next_delay", lambda: paused.append(pause()) or paused[-1]
        )
        for watch in range(2, 6):
            made.stub.end_watches()
            await made.follows(watch)
        assert made.stub.calls[ALL] == 1
    assert len(paused) == 4
    assert all(seconds >= 0.1 for seconds in paused)


async def test_a_watch_that_ends_after_a_while_is_restarted_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "_MIN_WATCH_SECONDS", -1.0)
    monkeypatch.setattr(watch_backoff, "_FIRST_SECONDS", 1000.0)
    async with kept(tmp_path, thing("a", 1)) as made:
        made.stub.end_watches()
        await made.follows(2)


@pytest.mark.usefixtures("short_backoff")
async def test_a_line_that_is_not_an_event_does_not_end_the_reflector(tmp_path: Path) -> None:
    async with kept(tmp_path, thing("a", 1)) as made:
        made.stub.send("MODIFIED", "no object")
        made.stub.end_watches()
        await made.follows(2)
        made.stub.send("ADDED", thing("b", 2))
        await until(lambda: made.sizes == {"a": 1, "b": 2})
        assert made.stub.calls[ALL] == 1


@pytest.mark.usefixtures("short_backoff")
async def test_a_refusal_counts_as_a_response_but_not_as_an_event(tmp_path: Path) -> None:
    async with kept(tmp_path, thing("a", 1)) as made:
        told = made.reflector._last_event_at
        made.stub.watches_refused = [(403, "")]
        made.stub.end_watches()
        await made.follows(3)
        assert made.reflector._last_event_at == told < made.reflector._last_response_at
        assert 0 <= made.reflector.seconds_since_response <= made.reflector.age_seconds


async def test_a_compressed_watch_begins_with_the_collection_which_is_not_listed(
    tmp_path: Path,
) -> None:
    things = (thing("a", 1), thing("odd", "large"))
    served = {"begins_watches": True, "compresses": True}
    async with kept(tmp_path, *things, is_compressed=True, **served) as made:
        await made.reflector.wait_synced(DEADLINE_SECONDS)
        assert (made.sizes, made.reflector.unreadable) == ({"a": 1}, 1)
        for number in range(3, 9):
            made.stub.send("MODIFIED", thing("a", number, str(number)))
        made.stub.send("ADDED", thing("b", 2, "9"))
        await until(lambda: made.sizes == {"a": 8, "b": 2})
        # As large as an object may be, and more than the client reads at a time.
        made.stub.send("MODIFIED", {**thing("b", 7, "10"), "padding": "x" * 3_000_000})
        made.stub.send("DELETED", thing("a", 8, "11"))
        await until(lambda: made.sizes == {"b": 7})
        assert made.forgotten == [("team", "a")]
        assert (made.stub.calls[ALL], made.stub.watched_from) == (0, [""])


async def test_a_compressed_watch_that_ends_begins_with_the_collection_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "_MIN_WATCH_SECONDS", 0.0)
    served = {"begins_watches": True, "compresses": True}
    async with kept(tmp_path, thing("a", 1), is_compressed=True, **served) as made:
        await made.reflector.wait_synced(DEADLINE_SECONDS)
        made.stub.send("ADDED", thing("gone", 2, "5"))
        await until(lambda: "gone" in made.sizes)
        made.stub.end_watches()
        await until(lambda: made.sizes == {"a": 1})
        assert made.forgotten == [("team", "gone")]
        assert (made.stub.calls[ALL], made.stub.watched_from) == (0, ["", ""])


async def test_a_collection_is_complete_with_its_bookmark_and_not_before(tmp_path: Path) -> None:
    served = {"begins_watches": True, "compresses": True}
    async with kept(
        tmp_path, thing("a", 1), thing("b", 2), is_compressed=True, is_listed=False, **served
    ) as made:
        made.stub.send("MODIFIED", thing("a", 3, "3"))
        made.stub.send("DELETED", thing("b", 2, "4"))
        assert not made.reflector.is_synced
        made.stub.send("BOOKMARK", END_OF_LIST)
        await made.reflector.wait_synced(DEADLINE_SECONDS)
        # Its user has seen the deleted one, and learns that it is gone.
        assert (made.sizes, made.forgotten) == ({"a": 3}, [("team", "b")])


async def test_after_a_watch_that_broke_off_before_its_list_was_complete_there_is_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_backoff, "_FIRST_SECONDS", 0.01)
    served = {"begins_watches": True, "compresses": True}
    async with kept(tmp_path, thing("a", 1), is_compressed=True, is_listed=False, **served) as made:
        made.stub.collections[ALL].clear()
        made.stub.lists_released.set()
        made.stub.end_watches()
        await made.reflector.wait_synced(DEADLINE_SECONDS)
        assert (made.stub.calls[ALL], made.stub.watched_from[0]) == (1, "")
        # Its user has seen one that the list does not have, and learns that it is gone.
        assert (made.sizes, made.forgotten) == ({}, [("team", "a")])


async def test_an_api_server_that_cannot_begin_a_watch_is_listed_and_watched(
    tmp_path: Path,
) -> None:
    async with kept(tmp_path, thing("a", 1), is_compressed=True) as made:
        assert (made.sizes, made.stub.calls[ALL], made.stub.watched_from) == ({"a": 1}, 1, ["1"])


async def test_a_watch_that_is_not_compressed_is_resumed_without_the_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "_MIN_WATCH_SECONDS", 0.0)
    async with kept(tmp_path, thing("a", 1), is_compressed=True, begins_watches=True) as made:
        await made.reflector.wait_synced(DEADLINE_SECONDS)
        made.stub.send("MODIFIED", thing("a", 2, "7"))
        await until(lambda: made.sizes == {"a": 2})
        made.stub.end_watches()
        await made.follows(2)
        assert (made.stub.calls[ALL], made.stub.watched_from) == (0, ["", "7"])
