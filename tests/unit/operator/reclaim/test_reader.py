"""What the reads of a reclaim keep of the pods of tenants."""

from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec

from reprieve_operator.cluster.policies import NamespacePolicies, PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.reclaim.reader import LentNodePod, ReclaimReader
from reprieve_policy.config.settings import PolicySettings
from reprieve_testing.objects.builders import NOW

LABELS = {f"l{number}": "" for number in range(20_000)}


class Listed:
    """Lists one page of large pods."""

    async def list_pages(self, *_: Any, **__: Any) -> AsyncIterator[list[LentNodePod]]:
        documents = [{"metadata": {"name": f"p{n}", "labels": LABELS}} for n in range(3)]
        yield [msgspec.convert(document, LentNodePod) for document in documents]


class Policy:
    """The defaults."""

    current = PolicySettings()


async def test_little_is_kept_of_large_pods() -> None:
    """Without this, a hundred of them in one Namespace would take all memory of the operator."""
    reader = ReclaimReader(
        cast("Writes", Listed()),
        cast("PolicySource", Policy()),
        cast("NamespacePolicies", None),
        NOW,
        (),
    )
    pods = await reader.pending_pods("home")
    assert [pod.metadata.name for pod in pods] == ["p0", "p1", "p2"]
    assert all(len(msgspec.json.encode(pod)) < 3000 for pod in pods)
