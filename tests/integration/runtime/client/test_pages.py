"""A collection in pages, which are small where its objects are large."""

import weakref
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from reprieve_runtime.client import api as client
from reprieve_runtime.client import stored
from reprieve_runtime.client.api import Api, ApiError, PartialObjectMetadata
from reprieve_runtime.client.page_retry import PageRetry
from reprieve_testing.servers.stub_api import StubApi, stub_api

ALL = "/api/v1/things"


def things(sizes: list[int]) -> dict[str, object]:
    """Return objects with this many characters each."""
    return {
        f"t{number}": {"metadata": {"name": f"t{number}", "labels": {"a": "x" * size}}}
        for number, size in enumerate(sizes)
    }


def limits(stub: StubApi) -> list[int]:
    """Return how many objects each call asked for."""
    return [int(parse_qs(urlsplit(path).query)["limit"][0]) for _, path, _ in stub.accepts]


CASES = {
    "small objects": ([1] * 20, [8, 8, 8]),
    "large ones in between: as few as fit, then as many as before": (
        [1] * 8 + [1200] * 4 + [1] * 20,
        [8, 8, 4, 2, 2, 2, 4, 8, 8],
    ),
    "one that is larger than a page is read alone": ([5000, 1, 1], [8, 4, 2, 1, 1, 2]),
}


@pytest.mark.parametrize(("sizes", "want"), CASES.values(), ids=CASES)
async def test_no_page_has_more_bytes_than_a_program_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], want: list[int]
) -> None:
    """Without this, one tenant's large pods would end every program that lists all pods."""
    monkeypatch.setattr(client, "_MAX_PAGE_BYTES", 4000)
    async with stub_api(tmp_path, collections={ALL: things(sizes)}) as (stub, api):
        stub.lists_released.set()
        stub.serves_pages = True
        found = [
            one.metadata.name
            async for page, _ in api.list_pages(ALL, PartialObjectMetadata, limit=8)
            for one in page
        ]
        assert found == [f"t{number}" for number in range(len(sizes))]
        assert limits(stub) == want


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses between reads of the same page, none of which is waited for."""
    taken: list[float] = []

    class Instant(PageRetry):
        def next_delay(self, at_least_seconds: float = 0.0) -> float:
            taken.append(super().next_delay(at_least_seconds))
            return 0.0

    monkeypatch.setattr(client, "PageRetry", Instant)
    return taken


async def names(api: Api) -> list[str | None]:
    return [
        one.metadata.name
        async for page, _ in api.list_pages(ALL, PartialObjectMetadata, limit=1)
        for one in page
    ]


def reads_of_first_page(stub: StubApi) -> int:
    return sum("continue" not in path for _, path, _ in stub.accepts)


# A client that is hung up on repeats the call once by itself, where the connection was open before.
@pytest.mark.parametrize("refusals", [[429], [500], [502], [503], [504], [0, 0]], ids=str)
async def test_a_refused_page_is_read_again_and_no_other(
    tmp_path: Path, pauses: list[float], refusals: list[int]
) -> None:
    """Without this, a long list would never end where few of its pages are refused."""
    async with stub_api(tmp_path, collections={ALL: things([1] * 100)}) as (stub, api):
        stub.lists_released.set()
        stub.serves_pages = True
        stub.pages_refused = {str(number): list(refusals) for number in range(10, 100, 10)}
        assert await names(api) == [f"t{number}" for number in range(100)]
        assert len(stub.accepts) == 100 + 9 * len(refusals)
        assert reads_of_first_page(stub) == 1
        assert len(pauses) == 9
        assert max(pauses) <= 0.5, "a page that was read ends the longer pauses"


@pytest.mark.parametrize(
    ("page", "status", "reads"),
    [
        ("5", 429, 7),
        ("5", 503, 7),
        ("5", 504, 4),
        ("5", 410, 1),
        ("5", 403, 1),
        ("0", 429, 1),
    ],
)
async def test_a_page_that_stays_refused_ends_the_list(
    tmp_path: Path, pauses: list[float], page: str, status: int, reads: int
) -> None:
    """One that the same call cannot get, and the first page, which callers retry, end it at once.

    An unanswered call may take a minute, so there are fewer of these.
    """
    async with stub_api(tmp_path, collections={ALL: things([1] * 10)}) as (stub, api):
        stub.lists_released.set()
        stub.serves_pages = True
        stub.pages_refused = {page: [status] * 20}
        with pytest.raises(ApiError, match=str(status)):
            await names(api)
        assert len(stub.accepts) == int(page) + reads
        assert reads_of_first_page(stub) == 1
        assert len(pauses) == reads - 1


@pytest.mark.parametrize(("retry_after", "least", "most"), [("7", 7, 15), ("3600", 15, 15)])
async def test_a_page_is_read_again_when_the_api_server_asks_for_it_at_most_15_seconds_later(
    tmp_path: Path, pauses: list[float], retry_after: str, least: float, most: float
) -> None:
    async with stub_api(tmp_path, collections={ALL: things([1] * 10)}) as (stub, api):
        stub.lists_released.set()
        stub.serves_pages = True
        stub.pages_refused, stub.retry_after = {"5": [429] * 6}, retry_after
        assert len(await names(api)) == 10
        assert len(pauses) == 6
        assert least <= min(pauses) <= max(pauses) <= most


class Thing(msgspec.Struct, weakref=True):
    """An object that shows whether it is still in memory."""

    metadata: object = None


@pytest.mark.parametrize(("at_once", "most"), [(10_000, 8), (1000, 1)])
async def test_the_objects_of_a_large_page_are_in_memory_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, most: int
) -> None:
    """Without this, those with very many labels, which take ten times their size, would add up."""
    monkeypatch.setattr(stored, "_MAX_DECODED_BYTES", at_once)
    made: list[weakref.ref[Thing]] = []
    counts = []
    async with stub_api(tmp_path, collections={ALL: things([200] * 8)}) as (stub, api):
        stub.lists_released.set()
        async for page, _ in api.list_pages(ALL, Thing):
            for one in page:
                made.append(weakref.ref(one))
                counts.append(sum(each() is not None for each in made))
    assert (len(made), max(counts)) == (8, most)
