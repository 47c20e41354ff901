"""A collection in pages, which are small where its objects are large."""

import weakref
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from reprieve_runtime.client import api as client
from reprieve_runtime.client import stored
from reprieve_runtime.client.api import PartialObjectMetadata
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
