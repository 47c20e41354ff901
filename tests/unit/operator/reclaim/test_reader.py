"""What the reads of a reclaim keep of the pods of tenants."""

import tracemalloc
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import msgspec
import pytest

from reprieve_operator.cluster.policies import NamespacePolicies, PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.reclaim.reader import ReclaimReader
from reprieve_policy.config.settings import PolicySettings
from reprieve_testing.objects.builders import NOW

LABELS = {f"l{number}": "" for number in range(20_000)}


class Listed:
    """Lists one page of large objects."""

    def __init__(self, count: int = 3, **fields: Any) -> None:
        self._count, self._fields = count, fields

    async def list_pages(self, _: str, kind: type[Any], **__: Any) -> AsyncIterator[Iterator[Any]]:
        texts = [
            msgspec.json.encode(
                {"metadata": {"name": f"p{number}", "labels": LABELS}, **self._fields}
            )
            for number in range(self._count)
        ]
        yield (msgspec.json.decode(text, type=kind) for text in texts)


class Policy:
    """The defaults."""

    current = PolicySettings()


def a_reader(listed: Listed) -> ReclaimReader:
    return ReclaimReader(
        cast("Writes", listed),
        cast("PolicySource", Policy()),
        cast("NamespacePolicies", None),
        NOW,
        (),
    )


async def test_little_is_kept_of_large_pods() -> None:
    """Without this, a hundred of them in one Namespace would take all memory of the operator."""
    pods = await a_reader(Listed()).pending_pods("home")
    assert [pod.metadata.name for pod in pods] == ["p0", "p1", "p2"]
    assert all(len(msgspec.json.encode(pod)) < 3000 for pod in pods)


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        ({"selector": {"matchLabels": {"app": "web"}}}, 10),
        ({"selector": {"matchLabels": LABELS}}, 0),
        ({"selector": {"matchExpressions": [{"key": "a", "values": [""] * 100_000}]}}, 0),
    ],
    ids=["in its labels", "in its selector", "in empty values"],
)
async def test_little_is_kept_of_large_budgets(spec: Any, kept: int) -> None:
    """Without this, 30 of 1.3 MB in one Namespace would take all memory of the operator."""
    reader = a_reader(Listed(10, spec=spec))
    tracemalloc.start()
    try:
        budgets = await reader._budgets_of("team")
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(budgets) == kept
    assert most_bytes < 15_000_000, "some are in memory at once, not all ten"
