"""Pending replacements of bare pods: limits per namespace, and which victims are recreated."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import REASONS, EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.metrics import OperatorMetrics
from reprieve_operator.replacements import bare_pod_store
from reprieve_operator.replacements.bare_pod_store import BarePodStore
from reprieve_operator.replacements.bare_pods import BarePodController
from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import Checkpoint, CheckpointOutcome, Eviction, Phase
from reprieve_runtime.client.api import ApiError
from reprieve_testing.objects.builders import NOW, after, an_eviction
from reprieve_testing.servers.stub_api import until

PODS = "/api/v1/namespaces/team/pods"
RECORDS = "/apis/apps/v1/namespaces/reprieve-system/controllerrevisions"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
FULL = "too many pods are waiting to be recreated"


@dataclass
class Cluster:
    """A cluster in memory, for the store and the controller."""

    objects: dict[str, Any] = field(default_factory=dict)
    current: PolicySettings = field(default_factory=lambda: PolicySettings(recreate_bare_pods=True))
    told: list[tuple[str, str, str]] = field(default_factory=list)
    allows: bool = True
    asked: int = 0
    """How many access reviews were created."""
    refuses: dict[str, ApiError] = field(default_factory=dict)
    """The error of a deletion, by path."""

    async def list_pages(
        self, path: str, kind: type[Any], *, params: Mapping[str, str], metadata_only: bool
    ) -> AsyncIterator[list[Any]]:
        assert (path, params, metadata_only) == (RECORDS, {"labelSelector": keys.BARE_POD}, True)
        for found in list(self.records):
            yield [msgspec.convert({"metadata": found["metadata"]}, kind)]

    async def create(self, path: str, document: Any) -> Any:
        if path == REVIEWS:
            self.asked += 1
            return {"status": {"allowed": self.allows}}
        place = f"{path}/{document['metadata']['name']}"
        if place in self.objects:
            raise ApiError(409, "AlreadyExists", "it is there")
        self.objects[place] = document
        document["metadata"].setdefault("uid", f"uid-of-another-{document['metadata']['name']}")
        return document

    async def get(self, path: str, kind: type[Any], *_: object, **__: object) -> Any:
        found = self.objects.get(path)
        return found if found is None or kind == dict[str, Any] else msgspec.convert(found, kind)

    async def delete_object(self, path: str, uid: str | None = None) -> None:
        if path in self.refuses:
            raise self.refuses[path]
        if uid is not None:
            assert self.objects[path]["metadata"]["uid"] == uid
        self.objects.pop(path, None)

    def event(self, regarding: ObjectReference, reason: str, note: str) -> None:
        assert reason in REASONS
        self.told.append((regarding.name, reason, note))

    @property
    def records(self) -> list[Any]:
        return [found for path, found in self.objects.items() if path.startswith(RECORDS)]

    def store(self) -> BarePodStore:
        return BarePodStore(cast("Writes", self), "reprieve-system")

    async def preserve(
        self,
        store: BarePodStore,
        name: str,
        checkpoint: Checkpoint | None = None,
        **annotations: str,
    ) -> None:
        """Store the replacement of a pod, as at the beginning of its end."""
        state = replace(an_eviction().build(), checkpoint=checkpoint)
        manifest = a_bare_pod("team", name, **annotations)
        self.objects[f"{PODS}/{name}"] = manifest
        await self.controller(store).store_replacement(msgspec.convert(manifest, VictimPod), state)

    def controller(
        self,
        store: BarePodStore,
        now: datetime = NOW,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> BarePodController:
        return BarePodController(
            cast("Writes", self),
            store,
            policy=cast("PolicySource", self),
            recorder=cast("EventRecorder", self),
            metrics=OperatorMetrics(),
            clock=Clock(now=lambda: now, monotonic=monotonic),
            interval_seconds=0.01,
        )


def a_bare_pod(namespace: str, name: str, **annotations: str) -> Any:
    metadata = {
        "namespace": namespace,
        "name": name,
        "uid": f"uid-{name}",
        "annotations": annotations,
    }
    return {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "i"}]}}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(bare_pod_store, "MAX_RECORDS", 3)
    monkeypatch.setattr(bare_pod_store, "MAX_RECORDS_OF_NAMESPACE", 2)
    monkeypatch.setattr(bare_pod_store, "MAX_BYTES", 2048)
    return Cluster()


async def keep(store: BarePodStore, *names: str) -> None:
    for namespace, name in (found.split("/") for found in names):
        await store.put(f"uid-{name}", a_bare_pod(namespace, name))


def refusal(store: BarePodStore, namespace: str) -> str:
    return store.rejection_reason(a_bare_pod(namespace, "next"))


KEPT = {
    "no records": ((), "", ""),
    "a record of a Namespace": (("a/1",), "", ""),
    "the limit of a Namespace": (("a/1", "a/2"), FULL, ""),
    "the total limit, no Namespace at its own": (("a/1", "b/2", "c/3"), FULL, FULL),
    "as much as a Namespace leaves free": (("a/1", "b/2"), FULL, ""),
    "the same record twice counts once": (("a/1", "a/1"), "", ""),
}


@pytest.mark.parametrize(("names", "for_a", "for_another"), KEPT.values(), ids=KEPT)
async def test_records_are_limited_by_namespace_and_in_total(
    cluster: Cluster, names: tuple[str, ...], for_a: str, for_another: str
) -> None:
    store = cluster.store()
    await keep(store, *names)
    assert (refusal(store, "a"), refusal(store, "d")) == (for_a, for_another)

    next_leaders = cluster.store()
    await next_leaders.load()
    assert (refusal(next_leaders, "a"), refusal(next_leaders, "d")) == (for_a, for_another)


async def test_a_record_that_is_written_during_loading_counts_once(cluster: Cluster) -> None:
    await keep(cluster.store(), "a/1")
    store = cluster.store()
    await keep(store, "a/1")
    await store.load()
    assert not refusal(store, "a")
    await keep(store, "a/2")
    assert refusal(store, "a") == FULL


async def test_removing_a_record_twice_frees_its_room_once(cluster: Cluster) -> None:
    store = cluster.store()
    await keep(store, "a/1", "a/2")
    await store.remove("uid-1")
    await store.remove("uid-1")
    assert not refusal(store, "a")
    await keep(store, "a/3")
    assert refusal(store, "a") == FULL


NOTES = {
    "little": ("x", False),
    "2,000 characters of a byte each, and the rest": ("x" * 2000, True),
    "900 of two bytes each, and the rest": ("ä" * 900, False),
    "1,000 of two bytes each, and the rest": ("ä" * 1000, True),
}


@pytest.mark.parametrize(("note", "is_refused"), NOTES.values(), ids=NOTES)
def test_the_size_of_a_manifest_is_limited_in_bytes_not_characters(
    cluster: Cluster, note: str, *, is_refused: bool
) -> None:
    why = cluster.store().rejection_reason(a_bare_pod("a", "next", note=note))
    assert why == ("its manifest has more than 2 KiB" if is_refused else "")


async def test_a_victim_whose_replacement_cannot_be_stored_still_ends_and_its_event_says_so(
    cluster: Cluster,
) -> None:
    store = cluster.store()
    for name in ("first", "second", "third"):
        await cluster.preserve(store, name)
    await cluster.preserve(store, "large", note="x" * 2048)
    assert [place.name for place in store.pending.values()] == ["first", "second"]
    assert len(cluster.records) == 2
    assert cluster.told == [
        ("third", "SoftEvictionNotRequeued", f"the pod is not created again: {FULL}"),
        (
            "large",
            "SoftEvictionNotRequeued",
            "the pod is not created again: its manifest has more than 2 KiB",
        ),
    ]


INHERITED = {
    keys.PREEMPTED_COUNT: "1",
    keys.FIRST_SUBMITTED_AT: timestamp.render(NOW),
    keys.RESUME_FROM_CHECKPOINT: "/ckpt/100",
    # A pod may write itself when it saved: here later than the acknowledged time.
    keys.LAST_CHECKPOINT_AT: timestamp.render(after(90)),
}
RESUMED = {
    "a victim that saved resumes there, not from its annotations": (
        Checkpoint(saved_at=after(60), path="/ckpt/9000"),
        "/ckpt/9000",
    ),
    "a victim that did not save resumes where it did last time": (None, "/ckpt/100"),
}


@pytest.mark.parametrize(("saved", "want"), RESUMED.values(), ids=RESUMED)
async def test_a_replacement_resumes_from_the_newest_checkpoint(
    cluster: Cluster, saved: Checkpoint | None, want: str
) -> None:
    await cluster.preserve(cluster.store(), "train", saved, **INHERITED)
    annotations = cluster.records[0]["data"]["pod"]["metadata"]["annotations"]
    assert annotations[keys.RESUME_FROM_CHECKPOINT] == want
    assert annotations[keys.PREEMPTED_COUNT] == "2"


async def test_a_denied_permission_is_checked_again_soon(
    cluster: Cluster,
) -> None:
    """Without this, a pod that is preempted just after an admin binds the role would be lost."""
    store, seconds = cluster.store(), [0.0]
    controller = cluster.controller(store, monotonic=lambda: seconds[0])

    async def preserve(name: str) -> None:
        manifest = cluster.objects[f"{PODS}/{name}"] = a_bare_pod("team", name)
        await controller.store_replacement(
            msgspec.convert(manifest, VictimPod), an_eviction().build()
        )

    cluster.allows = False
    await preserve("before")
    await preserve("with-it")
    assert (cluster.asked, cluster.records) == (1, [])
    cluster.allows = True
    seconds[0] += 2
    await preserve("after")
    seconds[0] += 59
    await preserve("later")
    assert cluster.asked == 2
    assert [place.name for place in store.pending.values()] == ["after", "later"]


async def test_a_victim_that_is_itself_a_replacement_is_not_recreated_twice(
    cluster: Cluster,
) -> None:
    """The record of the first replacement could not be removed."""
    store = cluster.store()
    await cluster.preserve(store, "train")
    made = a_bare_pod("team", "train", **{keys.REQUEUED_FROM: "uid-train"})
    made["metadata"]["uid"] = "uid-second"
    cluster.objects[f"{PODS}/train"] = made
    await cluster.controller(store).store_replacement(
        msgspec.convert(made, VictimPod), an_eviction().build()
    )
    assert list(store.pending) == ["uid-second"]
    assert len(cluster.records) == 1


async def test_a_forged_requeued_from_annotation_removes_no_other_record(cluster: Cluster) -> None:
    store = cluster.store()
    await cluster.preserve(store, "train")
    await cluster.preserve(store, "liar", **{keys.REQUEUED_FROM: "uid-train"})
    assert [place.name for place in store.pending.values()] == ["train", "liar"]


async def test_an_unreadable_pod_does_not_block_other_replacements(cluster: Cluster) -> None:
    store = cluster.store()
    await cluster.preserve(store, "broken")
    await cluster.preserve(store, "train")
    cluster.objects[f"{PODS}/broken"] |= {"status": {"conditions": "none"}}
    del cluster.objects[f"{PODS}/train"]
    await attend(cluster, lambda: "train" in {name for name, *_ in cluster.told})
    assert (
        cluster.objects[f"{PODS}/train"]["metadata"]["annotations"][keys.REQUEUED_FROM]
        == "uid-train"
    )


async def test_a_namespace_whose_pods_get_no_answer_rests(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call about its pods takes ten seconds, as behind a webhook that does not answer."""
    seconds, tried = 0.0, list[str]()
    store = cluster.store()
    await keep(store, "slow/1", "slow/2")
    await store.put("uid-3", a_bare_pod("team", "3", **{keys.PREEMPTED_COUNT: "1"}))
    create = cluster.create

    async def hang(path: str, document: Any) -> Any:
        nonlocal seconds
        tried.append(document["metadata"]["name"])
        if "/slow/" in path:
            seconds += 10.0
            raise ApiError(0, "TimeoutError", "no answer")
        return await create(path, document)

    monkeypatch.setattr(cluster, "create", hang)
    controller = cluster.controller(store, monotonic=lambda: seconds)
    for _ in range(3):
        for uid in list(store.pending):
            await controller._reconcile(uid)
    assert tried == ["1", "3"]
    seconds += 50.0
    for uid in list(store.pending):
        await controller._reconcile(uid)
    assert tried == ["1", "3", "2"]


async def test_a_policy_or_a_webhook_refuses_a_replacement_for_now_only(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = cluster.store()
    await keep(store, "team/1")
    denied = (
        "pods \"1\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request"
    )
    refusals = [
        ApiError(422, "Invalid", denied),
        ApiError(422, "", 'admission webhook "w.example.com" denied the request: no'),
        ApiError(422, "Invalid", 'Pod "1" is invalid: spec.containers: Required value'),
    ]

    async def refuse(*_: Any) -> Any:
        raise refusals.pop(0)

    monkeypatch.setattr(cluster, "create", refuse)
    seconds = 0.0
    controller = cluster.controller(store, monotonic=lambda: seconds)
    for _ in range(2):
        await controller._reconcile("uid-1")
        assert "uid-1" in store.pending
        seconds += 300.0
    await controller._reconcile("uid-1")
    assert not store.pending


async def test_a_replacement_that_is_created_though_the_answer_is_lost_is_reported(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.preserve(cluster.store(), "train")
    del cluster.objects[f"{PODS}/train"]
    create = cluster.create
    lost = [ApiError(0, "ClientOSError", "the connection was closed")]

    async def lose(path: str, document: Any) -> Any:
        made = await create(path, document)
        if path == PODS and lost:
            raise lost.pop()
        return made

    monkeypatch.setattr(cluster, "create", lose)
    (record,) = (path for path in cluster.objects if path.startswith(RECORDS))
    cluster.refuses[record] = ApiError(503, "Unavailable", "the record stays for a while")
    reported = [("train", "SoftEvictionRequeued")]
    await attend(cluster, lambda: [event[:2] for event in cluster.told] == reported)
    cluster.refuses.clear()
    await attend(cluster, lambda: not cluster.records)
    assert [event[:2] for event in cluster.told] == reported


TRAIN = f"{PODS}/train"
FINISHED = replace(
    an_eviction().hinted(deadline=after(600)).build(),
    phase=Phase.FINISHED,
    outcome=CheckpointOutcome.FINISHED,
)
WITHOUT_NOTICE = replace(FINISHED, hinted_at=None)
STAYS = replace(FINISHED, phase=Phase.CANCELLED, outcome=CheckpointOutcome.CANCELLED)
DELETED = {"deletionTimestamp": "2026-11-21T12:00:00Z"}
STILL_THERE: dict[str, tuple[Eviction, str, dict[str, str], str]] = {
    "the pod failed after the notice: recreated with its name": (
        FINISHED,
        "Failed",
        {},
        "recreated",
    ),
    "the pod failed and is being deleted: the replacement waits": (
        FINISHED,
        "Failed",
        DELETED,
        "waits",
    ),
    "the pod succeeded: no replacement": (FINISHED, "Succeeded", {}, "forgotten"),
    "the pod failed without notice: no replacement": (WITHOUT_NOTICE, "Failed", {}, "forgotten"),
    "the eviction is cancelled: no replacement": (STAYS, "Running", {}, "forgotten"),
    "cancelled, and the pod failed later: no replacement": (STAYS, "Failed", {}, "forgotten"),
    "cancelled, and the pod is being deleted: no replacement": (
        STAYS,
        "Running",
        DELETED,
        "forgotten",
    ),
}


def leave(cluster: Cluster, state: Eviction, phase: str, **metadata: str) -> None:
    """Store the victim with its final state."""
    pod = a_bare_pod("team", "train", **{keys.EVICTION: eviction.render(state)})
    pod["metadata"] |= {"labels": {keys.SOFT_EVICTION: state.phase.value}, **metadata}
    cluster.objects[TRAIN] = pod | {"status": {"phase": phase}}


async def attend(cluster: Cluster, until_it_is: Callable[[], bool], now: datetime = NOW) -> None:
    """Run a new leader's controller until the condition holds, then reconcile all records again."""
    store = cluster.store()
    controller = cluster.controller(store, now)
    task = asyncio.create_task(controller.run())
    await until(lambda: store.is_loaded and until_it_is())
    task.cancel()
    for uid in list(store.pending):
        await controller._reconcile(uid)


@pytest.mark.parametrize(
    ("state", "phase", "metadata", "want"), STILL_THERE.values(), ids=STILL_THERE
)
async def test_a_victim_that_still_exists_is_recreated_only_after_it_failed_with_notice(
    cluster: Cluster, state: Eviction, phase: str, metadata: dict[str, str], want: str
) -> None:
    await cluster.preserve(cluster.store(), "train")
    leave(cluster, state, phase, **metadata)
    waits = want == "waits"
    await attend(cluster, lambda: waits or not cluster.records)
    made = cluster.objects[TRAIN]["metadata"]["annotations"].get(keys.REQUEUED_FROM) == "uid-train"
    found = "recreated" if made else "waits" if cluster.records else "forgotten"
    assert found == want
    assert (("train", "SoftEvictionRequeued") in [event[:2] for event in cluster.told]) is made


REFUSED = ApiError(403, "Forbidden", "denied by a webhook")
UNDELETED = {
    "the deletion is tried again": (REFUSED, after(60), True, "SoftEvictionRequeueRefused"),
    "the deletion is given up after a day": (
        REFUSED,
        NOW + timedelta(hours=25),
        False,
        "SoftEvictionNotRequeued",
    ),
    "a conflict is tried again": (
        ApiError(409, "Conflict", "the UID in the precondition"),
        after(60),
        True,
        "",
    ),
}


@pytest.mark.parametrize(("error", "now", "is_kept", "reason"), UNDELETED.values(), ids=UNDELETED)
async def test_a_failed_victim_whose_deletion_is_refused(
    cluster: Cluster, error: ApiError, now: datetime, reason: str, *, is_kept: bool
) -> None:
    await cluster.preserve(cluster.store(), "train")
    leave(cluster, FINISHED, "Failed")
    cluster.records[0]["metadata"]["creationTimestamp"] = timestamp.render(NOW)
    cluster.refuses = {TRAIN: error}
    await attend(cluster, lambda: is_kept or not cluster.records, now)
    assert bool(cluster.records) is is_kept
    assert {event[1] for event in cluster.told} == ({reason} if reason else set())
    assert cluster.objects[TRAIN]["metadata"]["uid"] == "uid-train"
