"""Bare pods that wait for being made anew: the room for them, which one tenant's never take all of, and which victims come back."""

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
from reprieve_operator.cluster.policy_source import PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.metrics import OperatorMetrics
from reprieve_operator.replacements import bare_pod_store
from reprieve_operator.replacements.bare_pod_store import BarePodStore
from reprieve_operator.replacements.bare_pods import BarePodController
from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube import timestamp
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import Checkpoint, CheckpointOutcome, Eviction, Phase
from reprieve_runtime.client.api import ApiError
from reprieve_testing.builders import NOW, after, an_eviction
from reprieve_testing.stub_api import until

PODS = "/api/v1/namespaces/team/pods"
RECORDS = "/apis/apps/v1/namespaces/reprieve-system/controllerrevisions"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
FULL = "too many pods wait for being made anew"


@dataclass
class Cluster:
    """What the store and the requeuer do to one, in memory."""

    objects: dict[str, Any] = field(default_factory=dict)
    current: PolicySettings = field(default_factory=lambda: PolicySettings(recreate_bare_pods=True))
    told: list[tuple[str, str, str]] = field(default_factory=list)
    allows: bool = True
    asked: int = 0
    """How often about its right to make pods."""
    refuses: dict[str, ApiError] = field(default_factory=dict)
    """What the deletions of paths come to."""

    async def pages(
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

    async def find(self, path: str, kind: type[Any]) -> Any:
        found = self.objects.get(path)
        return found if found is None or kind == dict[str, Any] else msgspec.convert(found, kind)

    async def remove(self, path: str, uid: str | None = None) -> None:
        if path in self.refuses:
            raise self.refuses[path]
        if uid is not None:
            assert self.objects[path]["metadata"]["uid"] == uid
        self.objects.pop(path, None)

    def announce(self, regarding: ObjectReference, reason: str, note: str) -> None:
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
        """Have the pod's end begin."""
        state = replace(an_eviction().build(), checkpoint=checkpoint)
        whole = a_bare_pod("team", name, **annotations)
        self.objects[f"{PODS}/{name}"] = whole
        await self.requeuer(store).store_replacement(msgspec.convert(whole, VictimPod), state)

    def requeuer(
        self,
        store: BarePodStore,
        now: datetime = NOW,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> BarePodController:
        return BarePodController(
            cast("Writes", self),
            store,
            policy=cast("PolicySource", self),
            announcer=cast("EventRecorder", self),
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
    "nothing": ((), "", ""),
    "one of a Namespace": (("a/1",), "", ""),
    "all that a Namespace may have": (("a/1", "a/2"), FULL, ""),
    "all that there is room for, of nobody too many": (("a/1", "b/2", "c/3"), FULL, FULL),
    "the same one twice, which is one": (("a/1", "a/1"), "", ""),
}


@pytest.mark.parametrize(("names", "for_a", "for_another"), KEPT.values(), ids=KEPT)
async def test_there_is_room_for_so_many_of_a_namespace_and_in_all(
    cluster: Cluster, names: tuple[str, ...], for_a: str, for_another: str
) -> None:
    store = cluster.store()
    await keep(store, *names)
    assert (refusal(store, "a"), refusal(store, "d")) == (for_a, for_another)

    next_leaders = cluster.store()
    await next_leaders.load()
    assert (refusal(next_leaders, "a"), refusal(next_leaders, "d")) == (for_a, for_another)


async def test_what_was_written_while_the_rest_was_read_is_counted_once(cluster: Cluster) -> None:
    await keep(cluster.store(), "a/1")
    store = cluster.store()
    await keep(store, "a/1")
    await store.load()
    assert not refusal(store, "a")
    await keep(store, "a/2")
    assert refusal(store, "a") == FULL


async def test_what_is_made_or_given_up_leaves_its_room_once(cluster: Cluster) -> None:
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
def test_a_manifest_may_have_so_many_bytes_not_characters(
    cluster: Cluster, note: str, *, is_refused: bool
) -> None:
    why = cluster.store().rejection_reason(a_bare_pod("a", "next", note=note))
    assert why == ("its manifest has more than 2 KiB" if is_refused else "")


async def test_one_for_which_there_is_no_room_goes_all_the_same_and_its_event_says_so(
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


TOLD = {
    keys.PREEMPTED_COUNT: "1",
    keys.FIRST_SUBMITTED_AT: timestamp.render(NOW),
    keys.RESUME_FROM_CHECKPOINT: "/ckpt/100",
    # It says itself when it saved, as it may: later than it was acknowledged.
    keys.LAST_CHECKPOINT_AT: timestamp.render(after(90)),
}
RESUMED = {
    "one that saved resumes there, whatever it was told and says itself": (
        Checkpoint(saved_at=after(60), path="/ckpt/9000"),
        "/ckpt/9000",
    ),
    "one that did not resumes where it did": (None, "/ckpt/100"),
}


@pytest.mark.parametrize(("saved", "want"), RESUMED.values(), ids=RESUMED)
async def test_what_takes_the_place_of(
    cluster: Cluster, saved: Checkpoint | None, want: str
) -> None:
    await cluster.preserve(cluster.store(), "train", saved, **TOLD)
    told = cluster.records[0]["data"]["pod"]["metadata"]["annotations"]
    assert told[keys.RESUME_FROM_CHECKPOINT] == want
    assert told[keys.PREEMPTED_COUNT] == "2"


async def test_what_it_was_told_of_its_rights_is_asked_again_soon_where_it_was_a_no(
    cluster: Cluster,
) -> None:
    """Without this, what is preempted just after an admin has bound the right would be lost."""
    store, seconds = cluster.store(), [0.0]
    requeuer = cluster.requeuer(store, monotonic=lambda: seconds[0])

    async def preserve(name: str) -> None:
        whole = cluster.objects[f"{PODS}/{name}"] = a_bare_pod("team", name)
        await requeuer.store_replacement(msgspec.convert(whole, VictimPod), an_eviction().build())

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


async def test_what_was_made_before_does_not_come_back_for_what_it_has_become(
    cluster: Cluster,
) -> None:
    """That it was made could not be noted."""
    store = cluster.store()
    await cluster.preserve(store, "train")
    made = a_bare_pod("team", "train", **{keys.REQUEUED_FROM: "uid-train"})
    made["metadata"]["uid"] = "uid-second"
    cluster.objects[f"{PODS}/train"] = made
    await cluster.requeuer(store).store_replacement(
        msgspec.convert(made, VictimPod), an_eviction().build()
    )
    assert list(store.pending) == ["uid-second"]
    assert len(cluster.records) == 1


async def test_whoever_says_it_took_anothers_place_takes_nothing_from_it(cluster: Cluster) -> None:
    store = cluster.store()
    await cluster.preserve(store, "train")
    await cluster.preserve(store, "liar", **{keys.REQUEUED_FROM: "uid-train"})
    assert [place.name for place in store.pending.values()] == ["train", "liar"]


async def test_one_that_cannot_be_read_keeps_no_other_from_being_made(cluster: Cluster) -> None:
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


TRAIN = f"{PODS}/train"
FINISHED = replace(
    an_eviction().hinted(deadline=after(600)).build(),
    phase=Phase.FINISHED,
    outcome=CheckpointOutcome.FINISHED,
)
UNTOLD = replace(FINISHED, hinted_at=None)
STAYS = replace(FINISHED, phase=Phase.CANCELLED, outcome=CheckpointOutcome.CANCELLED)
DELETED = {"deletionTimestamp": "2026-11-21T12:00:00Z"}
STILL_THERE: dict[str, tuple[Eviction, str, dict[str, str], str]] = {
    "one that failed after it was told is made anew in its name": (
        FINISHED,
        "Failed",
        {},
        "made anew",
    ),
    "one that failed and is being deleted is waited for": (FINISHED, "Failed", DELETED, "waits"),
    "one that finished has finished": (FINISHED, "Succeeded", {}, "forgotten"),
    "one that failed without having been told failed by itself": (
        UNTOLD,
        "Failed",
        {},
        "forgotten",
    ),
    "one that stays, stays": (STAYS, "Running", {}, "forgotten"),
    "one that was to stay and failed later, failed by itself": (STAYS, "Failed", {}, "forgotten"),
    "one that was to stay and is being deleted goes for good": (
        STAYS,
        "Running",
        DELETED,
        "forgotten",
    ),
}


def leave(cluster: Cluster, state: Eviction, phase: str, **metadata: str) -> None:
    """Have the victim be there as it has ended."""
    pod = a_bare_pod("team", "train", **{keys.EVICTION: eviction.render(state)})
    pod["metadata"] |= {"labels": {keys.SOFT_EVICTION: state.phase.value}, **metadata}
    cluster.objects[TRAIN] = pod | {"status": {"phase": phase}}


async def attend(cluster: Cluster, until_it_is: Callable[[], bool], now: datetime = NOW) -> None:
    """Look at all records as a leader does that has just begun, for as long as it takes, and once more."""
    store = cluster.store()
    requeuer = cluster.requeuer(store, now)
    task = asyncio.create_task(requeuer.run())
    await until(lambda: store.is_loaded and until_it_is())
    task.cancel()
    for uid in list(store.pending):
        await requeuer._reconcile(uid)


@pytest.mark.parametrize(
    ("state", "phase", "metadata", "want"), STILL_THERE.values(), ids=STILL_THERE
)
async def test_of_victims_that_are_still_there(
    cluster: Cluster, state: Eviction, phase: str, metadata: dict[str, str], want: str
) -> None:
    await cluster.preserve(cluster.store(), "train")
    leave(cluster, state, phase, **metadata)
    waits = want == "waits"
    await attend(cluster, lambda: waits or not cluster.records)
    made = cluster.objects[TRAIN]["metadata"]["annotations"].get(keys.REQUEUED_FROM) == "uid-train"
    found = "made anew" if made else "waits" if cluster.records else "forgotten"
    assert found == want
    assert (("train", "SoftEvictionRequeued") in [told[:2] for told in cluster.told]) is made


REFUSED = ApiError(403, "Forbidden", "a webhook says no")
UNDELETED = {
    "it is tried again": (REFUSED, after(60), True, "SoftEvictionRequeueRefused"),
    "for a day": (REFUSED, NOW + timedelta(hours=25), False, "SoftEvictionNotRequeued"),
    "one whose name somebody else has just taken is looked at again": (
        ApiError(409, "Conflict", "the UID in the precondition"),
        after(60),
        True,
        "",
    ),
}


@pytest.mark.parametrize(("error", "now", "is_kept", "said"), UNDELETED.values(), ids=UNDELETED)
async def test_where_what_is_left_of_one_may_not_be_deleted(
    cluster: Cluster, error: ApiError, now: datetime, said: str, *, is_kept: bool
) -> None:
    await cluster.preserve(cluster.store(), "train")
    leave(cluster, FINISHED, "Failed")
    cluster.records[0]["metadata"]["creationTimestamp"] = timestamp.render(NOW)
    cluster.refuses = {TRAIN: error}
    await attend(cluster, lambda: is_kept or not cluster.records, now)
    assert bool(cluster.records) is is_kept
    assert {reason for _, reason, _ in cluster.told} == ({said} if said else set())
    assert cluster.objects[TRAIN]["metadata"]["uid"] == "uid-train"
