"""Bare pods that are victims take little memory, whatever their size and their number."""

import asyncio
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import PolicySource
from reprieve_operator.cluster.retries import is_overload
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.metrics import OperatorMetrics
from reprieve_operator.replacements import bare_pods
from reprieve_operator.replacements.bare_pod_store import BarePodStore
from reprieve_operator.replacements.bare_pods import BarePodController
from reprieve_policy.config.settings import PolicySettings
from reprieve_runtime import deep
from reprieve_runtime.client import api as client
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.api_error import ANSWER_TOO_LARGE
from reprieve_testing.objects.builders import an_eviction
from reprieve_testing.operator_parts import writes_of
from reprieve_testing.servers.stub_api import StubApi, stub_api, until

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
POD = "/api/v1/namespaces/team/pods/large"
RECORDS = "/apis/apps/v1/namespaces/reprieve-system/controllerrevisions"
TOO_LARGE = (
    "large",
    "SoftEvictionNotRequeued",
    "the pod is not created again: its manifest has more than 128 KiB",
)


class Policy:
    current = PolicySettings(recreate_bare_pods=True)


class Events:
    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def event(self, regarding: ObjectReference, reason: str, note: str) -> None:
        self.told.append((regarding.name, reason, note))


def controller_of(writes: Writes, events: Events) -> BarePodController:
    return BarePodController(
        writes,
        BarePodStore(writes, "reprieve-system"),
        policy=cast("PolicySource", Policy()),
        recorder=cast("EventRecorder", events),
        metrics=OperatorMetrics(),
        clock=Clock(),
        interval_seconds=60.0,
    )


def a_pod(namespace: str, name: str, note: str = "") -> dict[str, Any]:
    """Return a bare pod; with `note`, one whose writers have set as many fields."""
    managed = [{"manager": note}] if note else []
    metadata = {"namespace": namespace, "name": name, "uid": f"uid-{namespace}-{name}"}
    return {
        "metadata": metadata | {"managedFields": managed},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    }


async def store(controller: BarePodController, namespace: str, name: str) -> None:
    victim = msgspec.convert(a_pod(namespace, name), VictimPod)
    await controller.store_replacement(victim, an_eviction().build())


class Cluster:
    """Counts the pods that are in memory as a whole: read, and not yet stored or dropped."""

    def __init__(self, *, hangs_in: Collection[str] = ()) -> None:
        self._hangs_in = hangs_in
        self.under_way: Counter[str] = Counter()
        self.most = 0
        self.most_of_namespace = 0
        self.stored: list[str] = []

    async def get(self, path: str, *_: object, **__: object) -> Any:
        namespace, name = path.split("/")[-3::2]
        self.under_way[namespace] += 1
        self.most = max(self.most, self.under_way.total())
        self.most_of_namespace = max(self.most_of_namespace, self.under_way[namespace])
        if namespace in self._hangs_in:
            await asyncio.Event().wait()
        await let_others_run()
        return a_pod(namespace, name)

    async def create(self, path: str, document: Any) -> Any:
        if path == REVIEWS:
            return {"status": {"allowed": True}}
        assert path == RECORDS
        await let_others_run()
        metadata = document["data"]["pod"]["metadata"]
        self.under_way[metadata["namespace"]] -= 1
        self.stored.append(metadata["name"])
        return document


async def let_others_run() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_so_many_pods_are_in_memory_as_a_whole_at_a_time() -> None:
    cluster, events = Cluster(), Events()
    controller = controller_of(cast("Writes", cluster), events)
    places = [(f"team-{number % 5}", f"p{number}") for number in range(100)]
    await asyncio.gather(*(store(controller, *place) for place in places))
    assert sorted(cluster.stored) == sorted(name for _, name in places)
    assert cluster.most == 4
    assert cluster.under_way.total() == 0
    assert events.told == []


async def test_of_one_namespace_half_as_many_are() -> None:
    cluster = Cluster()
    controller = controller_of(cast("Writes", cluster), Events())
    await asyncio.gather(*(store(controller, "team", f"p{number}") for number in range(20)))
    assert len(cluster.stored) == 20
    assert cluster.most_of_namespace == 2


@pytest.mark.parametrize("number", [1, 4, 6])
async def test_reads_of_a_few_namespaces_that_hang_hold_up_no_other_namespace(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(bare_pods, "_MAX_STORE_SECONDS", 0.05)
    slow = [f"slow-{each}" for each in range(number)]
    cluster = Cluster(hangs_in=slow)
    controller = controller_of(cast("Writes", cluster), Events())
    places = [(name, f"p{each}") for name in slow for each in range(5)]
    hanging = [asyncio.create_task(store(controller, *place)) for place in places]
    await until(lambda: cluster.most >= min(number, 4))
    others = [asyncio.create_task(store(controller, "team", f"q{each}")) for each in range(5)]
    await until(lambda: len(cluster.stored) == len(others))
    ended = await asyncio.gather(*hanging, return_exceptions=True)
    assert {str(error) for error in ended} == {"0 Timeout: not stored within 0.05 seconds"}


def decoded_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of all answers that are decoded from now on."""
    sizes, decode = list[int](), deep.decode

    def note(text: bytes, kind: Any) -> Any:
        sizes.append(len(text))
        return decode(text, kind)

    monkeypatch.setattr(client, "decode", note)
    return sizes


async def store_one(stub: StubApi, api: Api, *, size: int, allowed: bool = True) -> Events:
    """Store a pod of so many bytes and a few more, with a real client."""
    answers = {REVIEWS: {"status": {"allowed": allowed}}, RECORDS: {"metadata": {}}}
    answers[POD] = a_pod("team", "large", "x" * size)
    for path, answer in answers.items():
        collection, _, last = path.rpartition("/")
        stub.collections[collection] = {last: answer}
    events = Events()
    await store(controller_of(writes_of(api), events), "team", "large")
    return events


async def test_a_pod_beyond_the_bound_is_not_decoded_and_an_event_says_why_it_is_not_recreated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = decoded_sizes(monkeypatch)
    async with stub_api(tmp_path) as (stub, api):
        events = await store_one(stub, api, size=512 * 1024)
        assert events.told == [TOO_LARGE]
        assert max(sizes) < 1024
        assert (stub.calls[POD], stub.calls[RECORDS]) == (1, 0)


async def test_a_pod_within_the_bound_is_stored_whatever_fields_its_writers_have_set(
    tmp_path: Path,
) -> None:
    async with stub_api(tmp_path) as (stub, api):
        events = await store_one(stub, api, size=500 * 1024)
        assert events.told == []
        assert (stub.calls[POD], stub.calls[RECORDS]) == (1, 1)


async def test_no_pod_is_read_where_the_operator_may_create_none(tmp_path: Path) -> None:
    async with stub_api(tmp_path) as (stub, api):
        events = await store_one(stub, api, size=512 * 1024, allowed=False)
        assert events.told == []
        assert (stub.calls[REVIEWS], stub.calls[POD], stub.calls[RECORDS]) == (1, 0, 0)


async def test_a_pod_that_is_deleted_meanwhile_is_not_stored(tmp_path: Path) -> None:
    async with stub_api(tmp_path) as (stub, api):
        stub.absent.add(POD)
        events = await store_one(stub, api, size=10)
        assert events.told == []
        assert (stub.calls[POD], stub.calls[RECORDS]) == (1, 0)


def test_an_answer_that_is_too_large_is_no_overload() -> None:
    """Without this, a tenant's large pods would slow down the calls of its Namespace."""
    assert is_overload(ApiError(0, "Unreachable", "no answer"))
    assert not is_overload(ApiError(0, ANSWER_TOO_LARGE, "more than so many bytes"))
