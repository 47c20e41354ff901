"""Hints and answers over real HTTP on loopback, with a reconciler.

No answer to an earlier eviction ends this one, and a workload that lost its hint gets it again.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from aiohttp import web

from reprieve_agent import http_message
from reprieve_agent.handler import CheckpointHandler
from reprieve_agent.request_files import RequestFiles
from reprieve_operator.checkpointing.client import CheckpointClient
from reprieve_operator.checkpointing.endpoints import HttpEndpoint
from reprieve_operator.checkpointing.http_transport import HttpTransport
from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallLimiter
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.metrics import OperatorMetrics
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.victims import notice
from reprieve_operator.victims.registry import ReconcilerRegistry
from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.objects import annotations_of
from reprieve_policy.lifecycle import eviction, mark
from reprieve_policy.lifecycle.eviction import Checkpoint, Eviction, Phase
from reprieve_runtime.client.api import ApiError
from reprieve_testing.objects.builders import an_eviction
from reprieve_testing.operator_parts import a_registry
from reprieve_testing.servers.stub_api import until

Json = Any
Answers = Iterator[Json]

POLL = 0.02
OLD = {"state": "saved", "step": 100, "path": "/data/100"}
NEW = {"state": "saved", "step": 700, "path": "/data/700"}
SAVING = {"state": "saving"}
IDLE = {"state": "idle"}
FAILS = 503
ID = "this"


def named(answer: Json) -> Json:
    """Return the answer with the id of the requested eviction."""
    return {**answer, "id": ID}


def saying(*answers: Json) -> Answers:
    """Return the answers one after another; the last one forever."""
    return itertools.chain(answers[:-1], itertools.repeat(answers[-1]))


@dataclass
class Workload:
    """Answers each POST and each GET with a document or a status."""

    posts: Answers
    gets: Answers
    attempts: list[int] = field(default_factory=list)
    """The attempt number of each hint."""
    looks: int = 0
    heard: str = ID

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST":
            hint = await request.json()
            self.heard = hint["id"]
            self.attempts.append(hint["attempt"])
            return self._say(next(self.posts))
        self.looks += 1
        return self._say(next(self.gets))

    def _say(self, said: Json) -> web.StreamResponse:
        if isinstance(said, int):
            return web.Response(status=said)
        return web.json_response(said | {"id": self.heard} if said.get("id") == ID else said)


@dataclass
class Behind:
    """A workload behind the agent."""

    desk: CheckpointHandler
    attempts: list[int] = field(default_factory=list)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        if request.method == "POST":
            self.attempts.append(json.loads(body)["attempt"])
        said = self.desk.handle(http_message.HttpRequest(request.method, body))
        return web.Response(status=said.status, body=said.body)


@dataclass
class Cluster:
    """Accepts every write, and deletes no pod."""

    states: list[Eviction] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    has_many_calls: bool = False
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    registry: ReconcilerRegistry | None = None
    lost_answers: int = 0
    """Writes of states that are carried out, and answered by a closed connection."""
    stored: VictimPod | None = None
    """After a lost answer: the pod as it is."""

    def is_busy(self, _: str) -> bool:
        return self.has_many_calls

    async def read_pod(self, *_: object) -> VictimPod | None:
        if self.stored is not None:
            return self.stored
        assert self.registry is not None
        reconciler = self.registry._reconcilers.get("uid")
        return None if reconciler is None else reconciler.tracker.pod

    async def write_state(
        self, pod: VictimPod, state: Eviction, *_: object, **__: bool
    ) -> VictimPod:
        self.states.append(state)
        written = with_state(pod, state)
        self.stored = None
        if self.lost_answers:
            self.lost_answers -= 1
            self.stored = written
            raise ApiError(0, "Unreachable", "Server disconnected")
        return written

    async def write_disruption_target(
        self, pod: VictimPod, state: Eviction, **_: bool
    ) -> VictimPod:
        self.states.append(state)
        await self.may_end.wait()
        return pod

    @property
    def deadlines(self) -> list[Any]:
        return [state.deadline for state in self.states]

    @property
    def end(self) -> Checkpoint | None:
        """The checkpoint, once the victim is in phase TERMINATING."""
        return next(
            (state.checkpoint for state in self.states if state.phase is Phase.TERMINATING), None
        )


def with_state(pod: VictimPod, state: Eviction) -> VictimPod:
    annotations = {**annotations_of(pod.metadata), keys.EVICTION: eviction.render(state)}
    version = str(int(pod.metadata.resourceVersion) + 1)
    labels = {keys.SOFT_EVICTION: state.phase.value}
    return replace(
        pod,
        metadata=replace(
            pod.metadata, resourceVersion=version, labels=labels, annotations=annotations
        ),
    )


def a_pod(port: int, state: Eviction | None = None) -> VictimPod:
    metadata = {
        "namespace": "team",
        "name": "train",
        "uid": "uid",
        "resourceVersion": "1",
        "labels": {keys.SOFT_EVICTION: mark.REQUESTED},
        "annotations": {keys.CHECKPOINT_HINT: f"http://:{port}/checkpoint"},
    }
    status = {"phase": "Running", "podIP": "127.0.0.1", "hostIP": "10.0.0.1"}
    pod = msgspec.convert({"metadata": metadata, "status": status}, VictimPod)
    return pod if state is None else with_state(pod, state)


def hinted(**fields: Any) -> Eviction:
    """Return the state that another operator wrote before it was killed."""
    clock = Clock()
    deadline = clock.now().replace(year=clock.now().year + 1)
    state = an_eviction().hinted(deadline=deadline).build()
    return replace(state, eviction_id=ID, requested_at=clock.now(), hinted_at=clock.now(), **fields)


Session = Callable[..., Awaitable[Cluster]]


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    """Start an operator on a victim in the given state."""
    closing: list[Callable[[], Awaitable[None]]] = []

    async def session(
        workload: Workload | Behind,
        state: Eviction | None = None,
        client: CheckpointClient | None = None,
        lost_answers: int = 0,
    ) -> Cluster:
        runner = web.ServerRunner(web.Server(workload.handle), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        cluster = Cluster(lost_answers=lost_answers)
        client = client or CheckpointClient({HttpEndpoint: HttpTransport})
        recorder: Any = SimpleNamespace(
            event=lambda _, reason, *__, **___: cluster.events.append(reason),
            is_burst=lambda _: False,
        )
        namespaces: Any = SimpleNamespace(
            get=lambda _: NamespacePolicy(), is_terminating=lambda _: False
        )
        settings = OperatorSettings(
            identity="a", allow_loopback_pod_ips=True, poll_interval_seconds=POLL
        )
        policy: Any = SimpleNamespace(current=PolicySettings(ceiling_seconds=10**9))
        ledger: Any = SimpleNamespace(record=lambda *_, **__: asyncio.sleep(0))
        pod = a_pod(runner.addresses[0][1], state)
        cluster.registry = registry = a_registry(
            writes=cluster,
            client=client,
            policy=policy,
            namespaces=namespaces,
            ledger=ledger,
            recorder=recorder,
            settings=replace(settings, resync_interval_seconds=5 * POLL),
        )
        closing.extend([registry.close, client.close, runner.cleanup])
        registry.on_pod_update(pod)
        return cluster

    yield session
    for close in closing:
        await close()


async def test_an_answer_to_an_earlier_eviction_does_not_end_one_that_the_workload_never_learned_of(
    session: Session,
) -> None:
    """The workload does not remember the first POST."""
    workload = Workload(posts=saying(FAILS, SAVING), gets=saying(OLD, SAVING, NEW))
    cluster = await session(workload)
    await until(lambda: cluster.end)
    assert workload.attempts == [1, 2]
    assert [state.phase for state in cluster.states][:3] == [
        Phase.HINTED,
        Phase.HINTED,
        Phase.CHECKPOINTING,
    ]
    assert cluster.end is not None
    assert cluster.end.step == 700


async def test_an_answer_to_an_earlier_eviction_does_not_count_after_a_kill_before_the_hint(
    session: Session,
) -> None:
    workload = Workload(posts=saying(SAVING), gets=saying(OLD, SAVING, NEW))
    cluster = await session(workload, hinted())
    await until(lambda: cluster.end)
    assert workload.attempts == [2]
    assert cluster.end is not None
    assert cluster.end.step == 700


async def test_the_time_of_a_victim_begins_when_its_call_starts(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notice, "_MAX_UNWRITTEN_SECONDS", 0.0)
    client = CheckpointClient({HttpEndpoint: HttpTransport}, max_calls=2)
    others = client.reserve_call("team", lambda: None)
    workload = Workload(posts=saying(named(SAVING)), gets=saying(named(NEW)))
    cluster = await session(workload, client=client)
    await until(lambda: cluster.states)
    await asyncio.sleep(5 * POLL)
    (queued,) = cluster.states
    assert (queued.phase, queued.hinted_at, workload.attempts) == (Phase.HINTED, None, [])
    others.release()
    await until(lambda: cluster.end)
    called = cluster.states[1]
    assert workload.attempts == [1]
    assert called.hinted_at is not None
    assert called.hinted_at > queued.requested_at
    assert called.deadline == called.hinted_at + timedelta(seconds=600)
    assert cluster.events[0] == "CheckpointRequested"
    # The call is free for others.
    assert client.reserve_call("team", lambda: None).is_granted


async def test_a_victim_that_waits_shortly_for_its_call_costs_no_write_for_that(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notice, "_MAX_UNWRITTEN_SECONDS", 60.0)
    client = CheckpointClient({HttpEndpoint: HttpTransport}, max_calls=2)
    others = client.reserve_call("team", lambda: None)
    workload = Workload(posts=saying(named(SAVING)), gets=saying(named(NEW)))
    cluster = await session(workload, client=client)
    await asyncio.sleep(5 * POLL)
    assert cluster.states == []
    waited_until = Clock().now()
    others.release()
    await until(lambda: cluster.end)
    assert [state.phase for state in cluster.states].count(Phase.HINTED) == 1
    hinted = cluster.states[0]
    assert hinted.hinted_at is not None
    assert hinted.requested_at < waited_until < hinted.hinted_at, "the ceiling counts the wait"


async def test_a_victim_that_stays_gives_up_its_place_in_the_queue(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notice, "_MAX_UNWRITTEN_SECONDS", 0.0)
    client = CheckpointClient({HttpEndpoint: HttpTransport}, max_calls=2)
    others = client.reserve_call("team", lambda: None)
    workload = Workload(posts=saying(SAVING), gets=saying(SAVING))
    cluster = await session(workload, client=client)
    await until(lambda: cluster.states)
    assert cluster.registry is not None
    await cluster.registry.close()
    others.release()
    assert client.reserve_call("team", lambda: None).is_granted
    assert workload.attempts == []


async def test_a_saved_answer_without_an_id_is_requested_again_by_the_next_operator(
    session: Session,
) -> None:
    """An operator was killed between the answer and the write of it."""
    workload = Workload(posts=saying(NEW), gets=saying(NEW))
    cluster = await session(workload, hinted())
    await until(lambda: cluster.end)
    assert (workload.attempts, workload.looks) == ([2], 1)
    assert cluster.end is not None
    assert cluster.end.step == 700


@pytest.mark.parametrize("lost_answers", [1, 3, 5])
async def test_a_workload_is_asked_once_however_many_answers_of_the_api_server_are_lost(
    session: Session, lost_answers: int
) -> None:
    workload = Workload(posts=saying(named(SAVING)), gets=saying(IDLE, named(NEW)))
    cluster = await session(workload, lost_answers=lost_answers)
    await until(lambda: cluster.end)
    assert workload.attempts == [1]
    assert cluster.end is not None
    assert cluster.end.step == 700


async def test_an_answer_with_the_id_counts_at_once(session: Session) -> None:
    workload = Workload(posts=saying(FAILS), gets=saying(named(NEW)))
    cluster = await session(workload, hinted())
    await until(lambda: cluster.end)
    assert (workload.attempts, workload.looks) == ([], 1)


async def test_an_answer_without_an_id_counts_for_the_operator_that_sent_the_hint(
    session: Session,
) -> None:
    workload = Workload(posts=saying(SAVING), gets=saying(SAVING, SAVING, NEW))
    cluster = await session(workload)
    await until(lambda: cluster.end)
    assert (workload.attempts, workload.looks) == ([1], 3)


async def test_an_answer_without_an_id_counts_for_the_next_operator_if_an_answer_was_written(
    session: Session,
) -> None:
    workload = Workload(posts=saying(FAILS), gets=saying(SAVING, NEW))
    state = hinted()
    cluster = await session(
        workload, replace(state, phase=Phase.CHECKPOINTING, answered_at=state.hinted_at)
    )
    await until(lambda: cluster.end)
    assert (workload.attempts, workload.looks) == ([], 2)


async def test_a_workload_that_takes_no_hint_and_shows_an_old_answer_gets_three_and_no_more_time(
    session: Session,
) -> None:
    workload = Workload(posts=saying(FAILS), gets=saying(OLD))
    cluster = await session(workload)
    await until(lambda: workload.looks >= 6)
    assert workload.attempts == [1, 2, 3]
    assert {state.phase for state in cluster.states} == {Phase.HINTED}
    assert len(set(cluster.deadlines)) == 1


async def test_a_container_that_restarts_while_it_saves_gets_the_hint_again(
    session: Session,
) -> None:
    workload = Workload(
        posts=saying(named(SAVING)), gets=saying(named(SAVING), IDLE, IDLE, named(NEW))
    )
    cluster = await session(workload)
    await until(lambda: cluster.end)
    assert workload.attempts == [1, 2]
    phases = [state.phase for state in cluster.states]
    assert phases == [Phase.HINTED, Phase.CHECKPOINTING, Phase.CHECKPOINTING, Phase.TERMINATING]
    assert len(set(cluster.deadlines[:3])) == 1
    asked, answered = "CheckpointRequested", "CheckpointAcknowledged"
    assert cluster.events[:3] == [asked, answered, asked]


@pytest.mark.parametrize("phase", [Phase.EXTENDED, Phase.DEFERRED])
async def test_a_restarted_container_gets_the_hint_again_in_every_phase(
    session: Session, phase: Phase
) -> None:
    workload = Workload(
        posts=saying(named(SAVING)),
        gets=saying(IDLE, {"state": "saved", "id": "other"}, named(NEW)),
    )
    state = hinted()
    cluster = await session(workload, replace(state, phase=phase, answered_at=state.hinted_at))
    await until(lambda: cluster.end)
    assert workload.attempts == [2]
    assert cluster.states[0] == replace(state, phase=phase, answered_at=state.hinted_at, attempt=2)


async def test_a_single_idle_answer_does_not_repeat_the_hint(session: Session) -> None:
    gets = saying(IDLE, named(SAVING), IDLE, named(SAVING), named(NEW))
    workload = Workload(posts=saying(named(SAVING)), gets=gets)
    cluster = await session(workload)
    await until(lambda: cluster.end)
    assert workload.attempts == [1]


async def test_a_restarted_container_that_gives_no_id_gets_the_hint_again(session: Session) -> None:
    """The checkpoint that it finds on its disk may be of any eviction."""
    workload = Workload(posts=saying(SAVING), gets=saying(SAVING, IDLE, OLD, NEW))
    cluster = await session(workload)
    await until(lambda: cluster.end)
    assert workload.attempts == [1, 2]
    assert cluster.end is not None
    assert cluster.end.step == 700


async def test_a_workload_that_always_forgets_gets_three_hints_and_its_answer_with_the_id_counts(
    session: Session,
) -> None:
    gets = saying(*[IDLE] * 20, OLD, OLD, OLD, named(NEW))
    workload = Workload(posts=saying(SAVING), gets=gets)
    cluster = await session(workload)
    await until(lambda: cluster.end)
    assert workload.attempts == [1, 2, 3]
    assert len(set(cluster.deadlines[:4])) == 1
    assert cluster.end is not None
    assert cluster.end.step == 700


def deliver(desk: CheckpointHandler, eviction_id: str) -> None:
    body = json.dumps({"version": 1, "id": eviction_id, "attempt": 1}).encode()
    desk.handle(http_message.HttpRequest("POST", body))


async def test_a_file_with_an_answer_to_an_earlier_eviction_does_not_end_this_one(
    session: Session, tmp_path: Path
) -> None:
    """The cancellation of the earlier eviction never reached the agent."""
    workload = Behind(
        CheckpointHandler(RequestFiles(str(tmp_path / "request")), None, lambda *_, **__: None)
    )
    answer = tmp_path / "request.answer"
    deliver(workload.desk, "before")
    answer.write_text(json.dumps(OLD))
    cluster = await session(workload, hinted())
    await until(lambda: workload.attempts == [2] and not answer.exists())
    answer.write_text(json.dumps(NEW))
    await until(lambda: cluster.end)
    assert cluster.end is not None
    assert (cluster.end.step, workload.attempts) == (700, [2])


async def test_a_file_with_an_answer_to_this_eviction_counts_for_the_next_operator(
    session: Session, tmp_path: Path
) -> None:
    """The agent knows the eviction of the answer, even if the file does not name it."""
    workload = Behind(
        CheckpointHandler(RequestFiles(str(tmp_path / "request")), None, lambda *_, **__: None)
    )
    deliver(workload.desk, ID)
    (tmp_path / "request.answer").write_text(json.dumps(NEW))
    cluster = await session(workload, hinted())
    await until(lambda: cluster.end)
    assert cluster.end is not None
    assert (cluster.end.step, workload.attempts) == (700, [])


class Server:
    """Records the bodies of patches."""

    def __init__(self) -> None:
        self.bodies: list[Json] = []

    async def patch(self, _: str, body: Json, *__: object, **___: object) -> Any:
        self.bodies.append(body)
        return a_pod(1)


async def test_an_earlier_answer_annotation_is_removed_with_the_first_write_only() -> None:
    """The write is conditional on the version: an answer written meanwhile refuses it."""
    server, leader = Server(), SimpleNamespace(require_leadership=lambda: 5.0)
    writes = Writes(
        cast("Any", server), CallLimiter(1), cast("Any", leader), OperatorMetrics(), Clock()
    )
    for begins in (True, False):
        await writes.write_state(a_pod(1), hinted(), None, begins=begins)
    first, later = (body["metadata"] for body in server.bodies)
    assert first["annotations"][keys.CHECKPOINT_ANSWER] is None
    assert keys.CHECKPOINT_ANSWER not in later["annotations"]
    assert (first["uid"], first["resourceVersion"]) == ("uid", "1")
