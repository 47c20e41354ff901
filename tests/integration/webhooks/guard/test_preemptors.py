"""The preemptor of a victim: nominations, the extender's sets, and the scheduler's retry time."""

import asyncio
import heapq
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.preemption.selection.snapshot import GangKey, Preemptor, Release
from reprieve_testing.guard.fixture import (
    GANG,
    HINT,
    HINTED,
    MARKED,
    NODE,
    PODS,
    TEAM,
    GuardFixture,
    a_nominee,
    a_victim,
    another_victim,
    code_of,
    guard_fixture,
    seconds_of,
    waiting_for_nominations,
)
from reprieve_testing.objects import cluster_views
from reprieve_testing.objects.cluster_views import FixedClusterView, a_scheduled_pod
from reprieve_testing.servers.stub_api import until
from reprieve_webhooks.guard import marking, reader

PROTECTED = {keys.PREEMPTIBLE: "false"}
TOLD = HINT | {keys.EVICTION: HINTED}


@pytest_asyncio.fixture
async def here(tmp_path: Path) -> AsyncIterator[GuardFixture]:
    async with guard_fixture(tmp_path, a_victim()) as found:
        yield found


async def test_the_guard_waits_for_a_nomination_that_is_under_way(here: GuardFixture) -> None:
    response = await here.delete_and_nominate(a_victim(), preemptionPolicy="Never")
    assert "preemptionPolicy is Never" in response["status"]["message"]
    assert here.stub.patches == []


async def nominate_elsewhere(here: GuardFixture) -> Any:
    """Nominate a pod that may preempt none to another node; return a victim that is there."""
    elsewhere = another_victim("elsewhere")
    elsewhere["spec"] |= {"nodeName": "node-2"}
    await here.nominate("refused", node="node-2", preemptionPolicy="Never")
    return elsewhere


def count_waits(here: GuardFixture, monkeypatch: pytest.MonkeyPatch) -> Sequence[None]:
    """Return a list that gets an entry each time the guard waits for a nomination."""
    waits: list[None] = []
    wait = here.guard.nominated_pods._wait_for_new

    async def counted(*about: Any) -> Any:
        waits.append(None)
        return await wait(*about)

    monkeypatch.setattr(here.guard.nominated_pods, "_wait_for_new", counted)
    return waits


async def test_however_often_a_refused_preemptor_returns_the_guard_waits_for_another(
    here: GuardFixture,
) -> None:
    """Without this, that one's victim would be marked for nobody, and leave."""
    elsewhere = await nominate_elsewhere(here)
    for _ in range(10):
        assert "Never" in (await here.delete(elsewhere))["status"]["message"]
    response = await here.delete_and_nominate(a_victim(), preemptionPolicy="Never")
    assert "preemptionPolicy is Never" in response["status"]["message"]
    assert here.stub.patches == []


@pytest.mark.parametrize("is_known", [False, True], ids=["no preemptor", "a preemptor"])
async def test_where_no_nomination_comes_the_guard_waits_three_times_only(
    here: GuardFixture, monkeypatch: pytest.MonkeyPatch, *, is_known: bool
) -> None:
    """Each wait may hold up the scheduling loop of a scheduler that preempts synchronously."""
    waits = count_waits(here, monkeypatch)
    node = (await nominate_elsewhere(here))["spec"]["nodeName"] if is_known else NODE
    for number in range(5):
        victim = another_victim(f"victim-{number}")
        victim["spec"] |= {"nodeName": node}
        await here.delete(victim)
    assert len(waits) == 3
    await here.nominate("next", node="node-3")
    await here.delete(a_victim())
    assert len(waits) == 4


async def test_where_schedulers_preempt_asynchronously_the_guard_waits_each_time(
    here: GuardFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.facts.facts = Facts(
        operator_is_live=True, settings=PolicySettings(scheduler_preemption="asynchronous")
    )
    waits = count_waits(here, monkeypatch)
    for number in range(5):
        await here.delete(another_victim(f"victim-{number}"))
    assert len(waits) == 5


async def test_a_nomination_during_the_review_shows_asynchronous_preemption(
    here: GuardFixture,
) -> None:
    await here.delete_and_nominate(a_victim())
    assert code_of(await here.delete(a_victim(labels=MARKED))) == 404


async def test_without_a_nomination_the_scheduler_counts_as_synchronous_however_many_retry(
    here: GuardFixture,
) -> None:
    """Each pod of a Job asks for the same victim, one right after the other."""
    assert seconds_of(await here.delete(a_victim())) is None
    assert len(here.stub.patches) == 1
    for _ in range(20):
        assert seconds_of(await here.delete(a_victim(labels=MARKED))) is None


async def test_a_pod_nominated_a_moment_ago_is_the_preemptor(
    here: GuardFixture,
) -> None:
    await here.nominate("stuck", priority=2000, preemptionPolicy="Never")
    await here.nominate("mine", ago=0.9)
    assert code_of(await here.delete(a_victim())) == 404
    assert "uid-of-mine" in json.dumps(here.stub.patches)


async def test_a_refused_preemptor_nominated_a_moment_ago_gets_the_shortest_retry_time(
    here: GuardFixture,
) -> None:
    await here.nominate("mine", ago=0.9, preemptionPolicy="Never")
    assert seconds_of(await here.delete(a_victim())) == 4


ACCEPTED = {
    "on its node": (NODE, 0.0, 429),
    "on another node": ("node-2", 0.0, 404),
    "after it": (NODE, 0.1, 404),
}


@pytest.mark.parametrize(("node", "ago", "code"), ACCEPTED.values(), ids=ACCEPTED)
async def test_a_nomination_that_follows_an_accepted_deletion_shows_nothing(
    here: GuardFixture, node: str, ago: float, code: int
) -> None:
    """A synchronous scheduler asks for the next pod of the same Job: it must not wait."""
    plain = another_victim("plain", annotations={})
    plain["spec"] |= {"nodeName": node}
    assert (await here.delete(plain))["allowed"]
    await here.nominate("before", ago=ago)
    here.clock_seconds += 0.01
    response = await here.delete(a_victim())
    assert (code_of(response), seconds_of(response)) == (code, None)
    assert "uid-of-before" in json.dumps(here.stub.patches)


async def test_a_preemptor_with_a_chosen_set_nominated_a_moment_ago_gets_the_shortest_retry_time(
    here: GuardFixture,
) -> None:
    await here.nominate("mine", ago=0.9, preemptionPolicy="Never")
    here.victim_sets.choose("mine", "train")
    assert seconds_of(await here.delete(a_victim())) == 4


async def test_every_replica_answers_404_to_the_preemptor_that_a_pod_was_marked_for(
    here: GuardFixture,
) -> None:
    """Another replica saw its nomination, and marked the pod."""
    await here.nominate("mine")
    await here.nominate("higher", priority=9000)
    for by, code in (("mine", 404), ("another", 429)):
        marked = a_victim(labels=MARKED, annotations=HINT | {keys.PREEMPTOR: f"uid-of-{by}"})
        assert code_of(await here.delete(marked)) == code
    here.facts.facts = Facts(
        operator_is_live=True, settings=PolicySettings(scheduler_preemption="synchronous")
    )
    marked = a_victim(labels=MARKED, annotations=HINT | {keys.PREEMPTOR: "uid-of-mine"})
    assert code_of(await here.delete(marked)) == 429


CHOSEN_FOR = {"was nominated long ago": 60.0, "a moment ago": 0.1}


@pytest.mark.parametrize("ago", CHOSEN_FOR.values(), ids=CHOSEN_FOR)
async def test_the_preemptor_that_the_victim_was_chosen_for_comes_before_later_nominations(
    here: GuardFixture, ago: float
) -> None:
    await here.nominate("mine", ago=ago)
    await here.nominate("later", priority=2000, ago=0.0, preemptionPolicy="Never")
    here.victim_sets.choose("mine", "train")
    assert "asked to save" in (await here.delete(a_victim()))["status"]["message"]
    assert "uid-of-mine" in json.dumps(here.stub.patches)


async def test_the_guard_waits_for_the_nomination_of_the_preemptor_that_the_victim_was_chosen_for(
    here: GuardFixture,
) -> None:
    """Another's, of a moment ago or while that is waited for, is none of it."""
    await here.nominate("before", ago=0.1, preemptionPolicy="Never")
    here.victim_sets.choose("mine", "train")
    asked = here.facts.reads
    with waiting_for_nominations():
        deletion = asyncio.create_task(here.delete(a_victim()))
        await until(lambda: here.facts.reads > asked)
        here.stub.send("ADDED", a_nominee("other", 2000, preemptionPolicy="Never"), PODS)
        await until(lambda: len(here.guard.nominated_pods.reflector.items) == 2)
        here.stub.send("ADDED", a_nominee("mine", 1000), PODS)
        assert "asked to save" in (await deletion)["status"]["message"]
    assert "uid-of-mine" in json.dumps(here.stub.patches)


async def test_without_the_nomination_of_its_preemptor_a_victim_may_go_for_any_nominated_pod(
    here: GuardFixture,
) -> None:
    await here.nominate("mine")
    await here.nominate("fresh", priority=2000, ago=0.1, preemptionPolicy="Never")
    here.victim_sets.choose("late", "train")
    assert "asked to save" in (await here.delete(a_victim()))["status"]["message"]
    assert "uid-of-mine" in json.dumps(here.stub.patches)


async def test_pods_under_eviction_are_listed_once_and_the_first_allowed_preemptor_suffices(
    here: GuardFixture,
) -> None:
    goes = {"labels": MARKED, "annotations": HINT | {keys.PREEMPTOR: "uid-of-busy"}}
    away = another_victim("away", **goes)
    away["spec"] |= {"nodeName": "node-2"}
    here.stub.collections[PODS] = {"away": away}
    for name, priority in (("busy", 9000), ("mine", 8000), ("third", 7000), ("fourth", 6000)):
        await here.nominate(name, priority)
    listed, asked = here.stub.calls[PODS], here.facts.reads
    assert "asked to save" in (await here.delete(a_victim()))["status"]["message"]
    assert "uid-of-mine" in json.dumps(here.stub.patches)
    assert here.stub.calls[PODS] - listed == 1
    # The victim, and the two that were looked at.
    assert here.facts.reads - asked == 3


async def test_a_list_of_marked_pods_that_is_too_large_leaves_no_victim_without_notice(
    here: GuardFixture, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A user may mark any number of their own pods, of any size.

    A list from the API server's cache has no limit.
    """
    monkeypatch.setattr(reader, "_MAX_VICTIM_LIST_BYTES", 1000)
    here.stub.collections[PODS] = {
        "large": another_victim("large", labels=MARKED, annotations={"example.com/pad": "x" * 1000})
    }
    await here.nominate("mine")
    assert "asked to save" in (await here.delete(a_victim()))["status"]["message"]
    assert "uid-of-mine" in json.dumps(here.stub.patches)
    assert [record.message for record in caplog.records].count(
        "could not read pods under eviction; a preemptor may get a second set of victims"
    ) == 1


async def test_concurrent_reviews_share_one_list_of_the_pods_under_eviction(
    here: GuardFixture,
) -> None:
    """Without this, reviews would wait for each other, and the last one past the timeout."""
    await here.nominate("mine")
    listed, asked = here.stub.calls[PODS], here.facts.reads
    here.stub.lists_released.clear()
    deletions = [
        asyncio.create_task(here.delete(another_victim(f"pod-{number}"))) for number in range(16)
    ]
    # Each has looked at its victim and at the preemptor: the list is what comes next.
    await until(lambda: here.facts.reads - asked == 32 and here.stub.calls[PODS] > listed)
    here.stub.lists_released.set()
    assert all(
        "asked to save" in response["status"]["message"]
        for response in await asyncio.gather(*deletions)
    )
    assert here.stub.calls[PODS] - listed == 1


async def test_a_recent_mark_counts(here: GuardFixture) -> None:
    await here.nominate("mine")
    await here.delete(another_victim("first"))
    away = another_victim("away", labels=MARKED, annotations=HINT | {keys.PREEMPTOR: "uid-of-mine"})
    away["spec"] |= {"nodeName": "node-2"}
    here.stub.collections[PODS] = {"away": away}
    assert "not gone yet" in (await here.delete(a_victim()))["status"]["message"]
    # Also in its last seconds.
    for seconds, is_put_off in ((30, False), (-600, True)):
        ends_at = datetime.now(UTC) + timedelta(seconds=seconds)
        away["metadata"]["deletionTimestamp"] = f"{ends_at:%Y-%m-%dT%H:%M:%SZ}"
        here.stub.collections[PODS] = {"away": away}
        message = (await here.delete(another_victim(f"after-{seconds}")))["status"]["message"]
        assert ("asked to save" in message) is is_put_off


def forbidden(here: GuardFixture) -> None:
    here.stub.barred.add(PODS)


def unanswered(here: GuardFixture) -> None:
    here.stub.lists_released.clear()
    here.guard._reader._timeout_seconds = 0.2


def in_no_form(here: GuardFixture) -> None:
    here.stub.collections[PODS] = {"odd": {"spec": 7}}


@pytest.mark.parametrize("is_made", [forbidden, unanswered, in_no_form])
async def test_where_the_pods_under_eviction_cannot_be_read_the_pod_is_notified(
    here: GuardFixture, is_made: Callable[[GuardFixture], None], caplog: pytest.LogCaptureFixture
) -> None:
    await here.nominate("mine")
    is_made(here)
    for name in ("one", "two"):
        assert "asked to save" in (await here.delete(another_victim(name)))["status"]["message"]
    assert here.marked() == ["one", "two"]
    assert caplog.text.count("could not read pods under eviction") == 1


async def test_an_earlier_nomination_shows_nothing_until_the_preemptor_retries_at_once(
    here: GuardFixture,
) -> None:
    await here.nominate("waits")
    assert seconds_of(await here.delete(a_victim())) is None
    codes = [code_of(await here.delete(a_victim(labels=MARKED))) for _ in range(6)]
    assert codes == [429, 429, 429, 429, 404, 404]


@pytest.mark.parametrize(("said", "is_timed"), [("asynchronous", True), ("synchronous", False)])
async def test_an_admin_may_configure_how_the_scheduler_preempts(
    here: GuardFixture, said: str, *, is_timed: bool
) -> None:
    here.facts.facts = Facts(
        operator_is_live=True, settings=PolicySettings(scheduler_preemption=said)
    )
    response = await (here.delete(a_victim()) if is_timed else here.delete_and_nominate(a_victim()))
    assert ("retryAfterSeconds" in response["status"]["details"]) is is_timed


async def test_all_victims_of_a_chosen_set_are_marked_except_those_that_cannot_be(
    tmp_path: Path,
) -> None:
    async with guard_fixture(tmp_path, *map(another_victim, ("train", "two", "three"))) as here:
        here.victim_sets.choose("high", "train", "two", "three")
        here.stub.refuses = {f"{TEAM}/two": 403}
        await here.delete_and_nominate(a_victim())
        assert here.marked() == ["train", "two", "three"]
        assert all(patch["metadata"]["resourceVersion"] == "7" for _, patch in here.stub.patches)
        assert all("uid-of-high" in json.dumps(patch) for _, patch in here.stub.patches)


async def test_the_rest_of_a_large_set_is_marked_after_the_review_and_by_one_review(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this, the review takes too long, and its pod is deleted without notice."""
    monkeypatch.setattr(marking, "_WAIT_SECONDS", 0.0)
    names = ["train", *(f"pod-{number}" for number in range(20))]
    async with guard_fixture(tmp_path, *map(another_victim, names)) as here:
        here.victim_sets.choose("high", *names)
        responses = await asyncio.gather(
            here.delete_and_nominate(a_victim()), here.delete(another_victim("pod-0"))
        )
        assert all("asked to save" in each["status"]["message"] for each in responses)
        await until(lambda: set(here.marked()) == set(names))
        # Each of the two reviews marks its own pod, and one of them all others.
        assert len(here.marked()) <= len(names) + 1


async def test_each_pod_of_a_set_is_evaluated_by_itself(tmp_path: Path) -> None:
    fellows = [
        another_victim("protected", labels={keys.PREEMPTIBLE: "false"}),
        another_victim("replaced", uid="another"),
        another_victim("leaves", deletionTimestamp="2026-11-21T12:00:00Z"),
        another_victim("plain", annotations={}),
        another_victim("told", annotations=TOLD),
        another_victim("last"),
    ]
    async with guard_fixture(tmp_path, a_victim(), *fellows) as here:
        here.victim_sets.choose(
            "high", "train", *(one["metadata"]["name"] for one in fellows), "gone"
        )
        await here.delete_and_nominate(a_victim())
        # "plain" leaves with those that save.
        assert here.marked() == ["train", "plain", "last"]


SAVING = {"labels": MARKED, "annotations": HINT | {keys.PREEMPTOR: "uid-of-high"}}
BESIDE: Mapping[str, tuple[Any, bool]] = {
    "saves": (another_victim("two", annotations=HINT), True),
    "is saving": (another_victim("two", annotations=TOLD), True),
    "wants no notice either": (another_victim("two", annotations={}), False),
    "is another pod by now": (another_victim("two", uid="another"), False),
    "has left": (another_victim("three"), False),
}


@pytest.mark.parametrize(("other", "is_put_off"), BESIDE.values(), ids=BESIDE)
async def test_a_victim_that_wants_no_notice_leaves_with_another_of_its_set_that(
    tmp_path: Path, other: Any, *, is_put_off: bool
) -> None:
    plain = a_victim(annotations={})
    async with guard_fixture(tmp_path, plain, other) as here:
        here.victim_sets.choose("high", "train", "two")
        response = await here.delete_and_nominate(plain)
        assert response["allowed"] is not is_put_off
        assert ("train" in here.marked()) is is_put_off


ON_ITS_NODE: Mapping[str, tuple[Any, bool]] = {
    "is marked for its preemptor": (SAVING, True),
    "is marked for another preemptor": (
        {**SAVING, "annotations": HINT | {keys.PREEMPTOR: "uid-of-other"}},
        False,
    ),
    "is being deleted": ({**SAVING, "deletionTimestamp": "2026-11-21T12:00:00Z"}, False),
}


@pytest.mark.parametrize(("other", "is_put_off"), ON_ITS_NODE.values(), ids=ON_ITS_NODE)
async def test_without_a_chosen_set_it_leaves_with_another_on_its_node_that(
    here: GuardFixture, other: Any, *, is_put_off: bool
) -> None:
    here.stub.collections[PODS] = {"two": another_victim("two", **other)}
    response = await here.delete_and_nominate(a_victim(annotations={}))
    assert response["allowed"] is not is_put_off
    assert here.marked() == (["train"] if is_put_off else [])


async def test_no_pod_is_marked_for_another_preemptors_set(tmp_path: Path) -> None:
    async with guard_fixture(tmp_path, a_victim(), another_victim("bystander")) as here:
        here.victim_sets.choose("stranger", "train", "bystander")
        await here.delete_and_nominate(a_victim())
        assert here.marked() == ["train"]


async def test_of_several_nominated_pods_the_one_that_the_victim_was_chosen_for_counts(
    here: GuardFixture,
) -> None:
    await here.nominate("stuck", priority=2000, preemptionPolicy="Never")
    await here.nominate("mine")
    here.victim_sets.choose("mine", "train")
    await here.delete(a_victim())
    assert here.marked() == ["train"]
    assert "uid-of-mine" in json.dumps(here.stub.patches)
    here.victim_sets.choose("stuck", "train")
    response = await here.delete(a_victim())
    assert "preemptionPolicy is Never" in response["status"]["message"]


async def test_a_victim_is_refused_only_if_it_is_protected_from_all_nominated_pods(
    here: GuardFixture,
) -> None:
    await here.nominate("stuck", priority=2000, preemptionPolicy="Never")
    assert "preemptionPolicy is Never" in (await here.delete(a_victim()))["status"]["message"]
    assert here.marked() == []
    await here.nominate("mine")
    assert "asked to save" in (await here.delete(a_victim()))["status"]["message"]
    assert "uid-of-mine" in json.dumps(here.stub.patches)


async def test_every_victim_of_a_set_is_answered_with_404_the_last_one_too(
    here: GuardFixture,
) -> None:
    await here.delete_and_nominate(a_victim())
    for victims in (("train", "two"), ("two", "train")):
        here.victim_sets.choose("high", *victims)
        assert code_of(await here.delete(a_victim())) == 404
    here.victim_sets.victim_set = None
    assert (await here.delete(a_victim(labels=GANG)))["status"]["reason"] == "NotFound"


async def test_no_victim_of_a_second_set_delays_the_preemptor_or_is_marked(
    here: GuardFixture,
) -> None:
    """Its scheduler turned to another node: the first set's room is what it waits for."""
    here.guard._refusal_history._monotonic = lambda: here.clock_seconds
    away = another_victim("away", labels=MARKED, annotations=HINT | {keys.PREEMPTOR: "uid-of-high"})
    away["spec"] |= {"nodeName": "node-2"}
    here.stub.collections[PODS] = {"away": away}
    responses = [await here.delete_and_nominate(another_victim("pod-0"))]
    responses += [await here.delete(another_victim(f"pod-{number}")) for number in range(1, 7)]
    assert all("not gone yet" in response["status"]["message"] for response in responses)
    # However many nodes it tries, no more than a few calls follow one another.
    assert [code_of(response) for response in responses] == [404] * 5 + [429] * 2
    assert seconds_of(responses[-1]) in (8, 12)
    assert here.marked() == []


async def test_a_second_set_that_the_extender_chose_is_marked(here: GuardFixture) -> None:
    """The room of the first set goes to a more important pod, for which it still leaves."""
    away = another_victim("away", labels=MARKED, annotations=HINT | {keys.PREEMPTOR: "uid-of-high"})
    away["spec"] |= {"nodeName": "node-2"}
    here.stub.collections[PODS] = {"away": away}
    here.victim_sets.choose("high", "train")
    assert code_of(await here.delete_and_nominate(a_victim())) == 404
    assert here.marked() == ["train"]


async def test_a_pod_that_was_not_marked_is_never_answered_with_404_and_gets_a_short_retry_time(
    here: GuardFixture,
) -> None:
    here.stub.refuses = {f"{TEAM}/train": 409}
    here.victim_sets.choose("high", "train", "two")
    response = await here.delete_and_nominate(a_victim())
    assert (response["status"]["code"], seconds_of(response)) == (429, 4)
    assert (await here.delete(a_victim(labels=GANG)))["status"]["code"] == 429


CHANGED: Mapping[str, tuple[Any, int]] = {
    "was marked by the review of another victim": (SAVING, 404),
    "is being saved": ({"annotations": TOLD}, 404),
    "is another pod by now": ({"uid": "another"}, 429),
    "is protected by now": ({"labels": {keys.PREEMPTIBLE: "false"}}, 429),
    "changed once more": ({}, 429),
}


@pytest.mark.parametrize(("changed", "code"), CHANGED.values(), ids=CHANGED)
async def test_a_pod_is_decided_on_again_if_it(here: GuardFixture, changed: Any, code: int) -> None:
    """Without this, victims that are reviewed at the same time would delay their preemptor."""
    here.stub.refuses = {f"{TEAM}/train": 409}
    here.stub.collections[TEAM] = {"train": a_victim(**changed, resourceVersion="8")}
    assert code_of(await here.delete_and_nominate(a_victim())) == code


async def test_a_gang_that_is_retried_often_is_no_longer_answered_with_404(
    here: GuardFixture,
) -> None:
    """Its scheduler looks at its preemptor whenever a pod ends anywhere."""
    tell_the_time(here)
    await here.delete_and_nominate(a_victim())
    codes = []
    for _ in range(6):
        here.clock_seconds += 0.5
        response = await here.delete(a_victim(labels=GANG))
        codes.append(response["status"]["code"])
    assert codes == [404] * 4 + [429] * 2
    assert seconds_of(response) == 4
    here.clock_seconds += 4
    assert (await here.delete(a_victim(labels=GANG)))["status"]["code"] == 404


async def test_of_the_requests_for_one_victim_at_most_two_wait(here: GuardFixture) -> None:
    """Before 1.35, a scheduler asks again while it waits, whenever a pod ends.

    Each request that waits is repeated ten times.
    """
    tell_the_time(here)
    answers = [await here.delete_and_nominate(a_victim(labels=PROTECTED))]
    for _ in range(3):
        here.clock_seconds += 0.5
        answers.append(await here.delete(a_victim(labels=PROTECTED)))
    assert [code_of(answer) for answer in answers] == [429, 429, 404, 404]
    assert len({answer["status"]["message"] for answer in answers}) == 1
    assert code_of(await here.delete(another_victim("other", labels=PROTECTED))) == 429
    # The first one is back.
    here.clock_seconds += 5
    assert code_of(await here.delete(a_victim(labels=PROTECTED))) == 429


def tell_the_time(here: GuardFixture) -> None:
    """Have the fixture's clock decide how often a scheduler asks."""
    for memory in (here.guard._refusal_history, here.guard._waiting_requests):
        memory._monotonic = lambda: here.clock_seconds


async def test_of_two_victims_only_the_last_one_has_its_preemptor_wait(here: GuardFixture) -> None:
    """Without this, both could end while the scheduler waits, and nothing would wake it."""
    here.guard._refusal_history._monotonic = lambda: here.clock_seconds
    await here.delete_and_nominate(a_victim())
    pair = (a_victim(labels=MARKED), another_victim("other", labels=MARKED))
    codes = []
    while 429 not in codes and len(codes) < 40:
        here.clock_seconds += 1.5
        codes += [code_of(await here.delete(pod)) for pod in pair]
    assert codes == [404] * (len(codes) - 1) + [429]


async def test_however_many_victims_there_are_the_wait_at_the_last_one_is_short(
    here: GuardFixture,
) -> None:
    """Without this, the preemptor would sleep long after its victims are gone."""
    tell_the_time(here)
    names = ["train", *(f"pod-{number}" for number in range(5))]
    await here.delete_and_nominate(a_victim())
    answers = []
    while not any(map(seconds_of, answers)) and len(answers) < 100:
        here.clock_seconds += 0.5
        answers = [await here.delete(another_victim(name, labels=MARKED)) for name in names]
    assert [seconds_of(answer) for answer in answers] == [None] * 5 + [4]
    # It comes back as often as one long wait would have taken, and only for this victim.
    times = 0
    while code_of(answers[-1]) == 429:
        here.clock_seconds += 4
        times += 1
        answers.append(await here.delete(another_victim(names[-1], labels=MARKED)))
    assert times == len(names)


async def test_victims_that_count_as_gone_do_not_lengthen_the_wait_for_a_refused_one(
    here: GuardFixture,
) -> None:
    tell_the_time(here)
    await here.delete_and_nominate(a_victim())
    for number in range(5):
        assert code_of(await here.delete(another_victim(f"pod-{number}"))) == 404
    refused = [
        await here.delete(another_victim(f"kept-{number}", labels=PROTECTED)) for number in range(2)
    ]
    # A second for each victim that it was asked about, as its scheduler asks for all again.
    assert [seconds_of(answer) for answer in refused] == [9, 11]


async def test_a_refused_preemptor_looks_for_another_place_after_one_wait(
    here: GuardFixture,
) -> None:
    tell_the_time(here)
    kept = a_victim(labels=PROTECTED)
    answers = [await here.delete_and_nominate(kept)]
    for _ in range(3):
        here.clock_seconds += 5
        # The first is back from its wait, the second belongs to the scheduler's next attempt.
        answers += [await here.delete(kept), await here.delete(kept)]
    assert {code_of(answer) for answer in answers} == {429}
    assert [seconds_of(answer) for answer in answers] == [5, *[None, 5] * 3]


VICTIMS = range(1, 17)


@pytest.mark.parametrize("victims", VICTIMS)
async def test_a_preemptor_with_refused_victims_causes_at_most_one_call_a_second(
    here: GuardFixture, victims: int
) -> None:
    for refused in {1, (victims + 1) // 2, victims}:
        scheduler = RefusedScheduler(here, victims, refused)
        await scheduler.run(until=here.clock_seconds + _FIRST_SECONDS)
        calls = await scheduler.run(until=here.clock_seconds + _WATCHED_SECONDS)
        assert calls / _WATCHED_SECONDS <= 1


_FIRST_SECONDS, _WATCHED_SECONDS = 30, 300


class RefusedScheduler:
    """Asks for victims as kube-scheduler does (`framework/preemption/executor.go`).

    For all but one, then for that one; each request that is told a time comes back. Another error
    ends the attempt, and the next one begins.
    """

    def __init__(self, here: GuardFixture, victims: int, refused: int) -> None:
        tell_the_time(here)
        self._here = here
        self._victims = [
            another_victim(
                f"{victims}-{refused}-{number}",
                **({"labels": PROTECTED} if number < refused else {"annotations": TOLD}),
            )
            for number in range(victims)
        ]
        self._is_new = True

    async def run(self, until: float) -> int:
        """Return the number of calls until that time."""
        calls = 0
        while self._here.clock_seconds < until:
            calls += await self._attempt(until)
        return calls

    async def _attempt(self, until: float) -> int:
        calls = 0
        for together in (self._victims[:-1], self._victims[-1:]):
            due = [(self._here.clock_seconds, number) for number in range(len(together))]
            while due and self._here.clock_seconds < until:
                at, number = heapq.heappop(due)
                self._here.clock_seconds = max(at, self._here.clock_seconds)
                answer = await self._ask(together[number])
                calls += 1
                seconds = seconds_of(answer)
                if seconds is not None:
                    heapq.heappush(due, (self._here.clock_seconds + seconds, number))
                elif code_of(answer) == 429:
                    self._here.clock_seconds += 0.02
                    return calls
        self._here.clock_seconds += 1
        return calls

    async def _ask(self, victim: Any) -> Any:
        if not self._is_new:
            return await self._here.delete(victim)
        self._is_new = False
        return await self._here.delete_and_nominate(victim)


async def test_of_two_victims_that_are_marked_and_asked_for_at_once_it_waits_at_the_last_one(
    here: GuardFixture,
) -> None:
    """The API server asks twice about a pod that changes during its review."""
    here.guard._refusal_history._monotonic = lambda: here.clock_seconds
    await here.delete_and_nominate(a_victim())
    await here.delete(a_victim(labels=MARKED))
    pair = (a_victim(labels=MARKED), another_victim("other", labels=MARKED))
    codes = [code_of(await here.delete(pod)) for pod in (another_victim("other"), pair[1])]
    while 429 not in codes and len(codes) < 40:
        here.clock_seconds += 0.02
        codes += [code_of(await here.delete(pod)) for pod in pair]
    assert codes == [404] * (len(codes) - 1) + [429]


GOING = a_scheduled_pod(
    "going", "node-2", release=Release(expected_at=cluster_views.NOW, notified=True)
)
MINE = GangKey("team-b", "mine")


def a_mate(**fields: Any) -> Preemptor:
    return cluster_views.a_preemptor("uid-of-high", gang=MINE, **fields)


COMING = {"on any node": a_mate(), "where it is nominated": a_mate(nominated_node="node-2")}


@pytest.mark.parametrize("mate", COMING.values(), ids=COMING)
async def test_a_gang_gets_no_second_set_while_capacity_is_being_released(
    tmp_path: Path, mate: Preemptor
) -> None:
    """Its scheduler may have chosen by itself: the extender did not answer."""
    view = FixedClusterView([GOING], [mate])
    async with guard_fixture(tmp_path, a_victim(), cluster_view=view) as here:
        response = await here.delete_and_nominate(a_victim())
        assert "victims on another node are not gone yet" in response["status"]["message"]
        assert here.stub.patches == []


OTHERS = {
    "has no gang": FixedClusterView([GOING], [cluster_views.a_preemptor("uid-of-high")]),
    "asks for more room than is coming": FixedClusterView([GOING], [a_mate(cpu=9)]),
    "has inter-pod constraints": FixedClusterView([GOING], [a_mate(depends_on_other_pods=True)]),
    "has leaving victims on the same node": FixedClusterView(
        [replace(GOING, node=NODE)], [a_mate(nominated_node=NODE)]
    ),
    "is not known to the extender": FixedClusterView([GOING], []),
    "is known to watches that lag behind": FixedClusterView([GOING], [a_mate()], is_stale=True),
}


@pytest.mark.parametrize("cluster_view", OTHERS.values(), ids=OTHERS)
async def test_victims_are_marked_for_a_preemptor_that(
    tmp_path: Path, cluster_view: FixedClusterView
) -> None:
    async with guard_fixture(tmp_path, a_victim(), cluster_view=cluster_view) as here:
        await here.delete_and_nominate(a_victim())
        assert here.marked() == ["train"]


async def test_the_snapshot_of_the_extender_is_taken_once_for_a_review(tmp_path: Path) -> None:
    cluster_view = FixedClusterView([GOING], [a_mate(cpu=9)])
    async with guard_fixture(tmp_path, a_victim(), cluster_view=cluster_view) as here:
        for name in ("one", "two", "three"):
            await here.nominate(name, 2000, preemptionPolicy="Never")
        await here.nominate("high")
        await here.delete(a_victim())
        assert "uid-of-high" in json.dumps(here.stub.patches)
        assert cluster_view.snapshots_taken == 1
