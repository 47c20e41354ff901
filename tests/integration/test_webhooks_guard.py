"""The guard's route over TLS, against an API server of lists and watches: what is answered, what is written, what is asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from reprieve_policy import keys
from reprieve_policy.facts import Facts
from reprieve_policy.namespace import NamespacePolicy
from reprieve_policy.objects import Resource
from reprieve_policy.settings import PolicySettings
from reprieve_testing import reviews
from reprieve_testing.reviews import RunningServer, a_review, running_server
from reprieve_testing.stub_api import StubApi, stub_api, until
from reprieve_webhooks.extender.choices import Choice, Named
from reprieve_webhooks.guard.handler import Guard
from reprieve_webhooks.guard.paths import SecretPaths, path_of
from reprieve_webhooks.review import Request

SCHEDULER = {"username": "system:kube-scheduler", "groups": ["system:authenticated"]}
OPERATOR = "system:serviceaccount:reprieve-system:reprieve-operator"
PODS = "/api/v1/pods"
TEAM = "/api/v1/namespaces/team-a/pods"
HINT = {keys.CHECKPOINT_HINT: "annotation:"}
NODE = "node-1"


@dataclass
class Known:
    """Facts that a test says, and what was asked for."""

    facts: Facts = field(default_factory=lambda: Facts(operator_is_there=True))

    async def facts_for(self, request: Request, resource: Resource) -> Facts:
        assert request.object is resource
        return self.facts


@dataclass
class Chosen:
    """The set that an extender returned, if any."""

    choice: Choice | None = None

    def of(self, node: str, victim_uid: str) -> Choice | None:
        if self.choice is None or node != NODE:
            return None
        return self.choice if victim_uid in {one.uid for one in self.choice.victims} else None


@dataclass
class Scene:
    server: RunningServer
    stub: StubApi
    known: Known
    chosen: Chosen
    guard: Guard

    async def delete(self, pod: Any, **changes: Any) -> Any:
        review = a_review(None, old=pod, operation="DELETE", **({"userInfo": SCHEDULER} | changes))
        return await self.server.ask("/guard", review)

    async def evict(self, name: str = "train", body: Any = None, **changes: Any) -> Any:
        kind = {"group": "policy", "version": "v1", "kind": "Eviction"}
        review = a_review(
            None, operation="CREATE", kind=kind, name=name, namespace="team-a", object=body or {}, **changes
        )
        return await self.server.ask("/guard", review)

    def nominate(self, name: str = "high", priority: int = 1000, **spec: Any) -> None:
        self.stub.send("ADDED", a_nominee(name, priority, **spec), PODS)

    async def nominated(self, number: int) -> None:
        await until(lambda: len(self.guard.nominees.reflector.items) == number)


@asynccontextmanager
async def scene(directory: Path, *pods: Any) -> AsyncIterator[Scene]:
    stored = {pod["metadata"]["name"]: pod for pod in pods}
    async with stub_api(directory, collections={TEAM: stored, PODS: {}}) as (stub, api):
        stub.lists_released.set()
        known, chosen = Known(), Chosen()
        guard = Guard(api, known, operator=OPERATOR, timeout_seconds=5.0, choices=chosen)
        async with watching(guard, stub), running_server(guard=guard) as server:
            yield Scene(server, stub, known, chosen, guard)


@asynccontextmanager
async def watching(guard: Guard, stub: StubApi) -> AsyncIterator[None]:
    running = asyncio.create_task(guard.nominees.reflector.run())
    try:
        await until(lambda: stub.open_watches == 1)
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


@pytest_asyncio.fixture
async def here(tmp_path: Path) -> AsyncIterator[Scene]:
    async with scene(tmp_path, a_victim()) as found:
        yield found


def a_victim(**metadata: Any) -> Any:
    pod = reviews.a_pod(labels={keys.PREEMPTION_CLASS: "4"}, annotations=HINT)
    pod["metadata"] |= {"uid": "uid-1", "resourceVersion": "7", **metadata}
    pod["spec"] |= {"nodeName": NODE}
    pod["status"] = {"phase": "Running"}
    return pod


def a_nominee(name: str, priority: int, **spec: Any) -> Any:
    return {
        "metadata": {"name": name, "namespace": "team-b", "uid": f"uid-of-{name}", "resourceVersion": "9"},
        "spec": {"priority": priority, "containers": [], **spec},
        "status": {"phase": "Pending", "nominatedNodeName": NODE},
    }


async def test_a_scheduler_is_put_off_and_the_pod_is_marked_at_the_version_that_was_judged(here: Scene) -> None:
    here.nominate()
    response = await here.delete(a_victim())
    assert response["allowed"] is False
    assert (response["status"]["code"], response["status"]["reason"]) == (429, "TooManyRequests")
    assert response["status"]["details"]["retryAfterSeconds"] == 30
    ((path, patch),) = here.stub.patches
    assert path == f"{TEAM}/train"
    metadata = patch["metadata"]
    assert (metadata["uid"], metadata["resourceVersion"]) == ("uid-1", "7")
    assert metadata["labels"] == {keys.SOFT_EVICTION: "marked"}
    said = json.loads(metadata["annotations"][keys.KOORDINATOR_SOFT_EVICTION])
    assert said["reason"] == "preempted by pod uid-of-high"


async def test_a_nomination_that_is_on_its_way_is_waited_for(here: Scene) -> None:
    asked = asyncio.create_task(here.delete(a_victim()))
    await asyncio.sleep(0)
    here.nominate(preemptionPolicy="Never")
    response = await asked
    assert "preemptionPolicy is Never" in response["status"]["message"]
    assert here.stub.patches == []


async def test_without_a_nomination_the_scheduler_is_taken_to_stand_still_unless_it_insists(here: Scene) -> None:
    first = await here.delete(a_victim())
    assert "retryAfterSeconds" not in first["status"]["details"]
    assert len(here.stub.patches) == 1
    at_once = await here.delete(a_victim(labels={keys.SOFT_EVICTION: "requested"}))
    assert at_once["status"]["details"]["retryAfterSeconds"] == 2


@pytest.mark.parametrize(("said", "is_timed"), [("asynchronous", True), ("synchronous", False)])
async def test_an_admin_may_say_how_the_scheduler_preempts(here: Scene, said: str, *, is_timed: bool) -> None:
    here.known.facts = Facts(operator_is_there=True, settings=PolicySettings(scheduler_preemption=said))
    if not is_timed:
        here.nominate()
        await here.nominated(1)
    response = await here.delete(a_victim())
    assert ("retryAfterSeconds" in response["status"]["details"]) is is_timed


async def test_the_whole_set_that_was_chosen_is_marked_and_one_that_cannot_be_is_left(here: Scene) -> None:
    victims = tuple(Named(f"uid-{number}", "team-a", f"pod-{number}") for number in (1, 2, 3))
    here.chosen.choice = Choice(preemptor=Named("uid-of-x", "team-b", "x"), node=NODE, victims=victims)
    here.stub.refuses = {f"{TEAM}/pod-2": 403}
    await here.delete(a_victim())
    assert [path for path, _ in here.stub.patches] == [f"{TEAM}/train", f"{TEAM}/pod-2", f"{TEAM}/pod-3"]
    assert "resourceVersion" not in here.stub.patches[1][1]["metadata"]
    assert all("uid-of-x" in json.dumps(patch) for _, patch in here.stub.patches)


async def test_a_scheduler_sleeps_over_the_last_of_a_set_and_is_through_with_the_others(here: Scene) -> None:
    here.nominate()
    await here.nominated(1)
    first, last = Named("uid-1", "team-a", "train"), Named("uid-2", "team-a", "pod-2")
    for victims, code in (((first, last), 404), ((last, first), 429)):
        here.chosen.choice = Choice(preemptor=Named("uid-of-high", "team-b", "high"), node=NODE, victims=victims)
        status = (await here.delete(a_victim()))["status"]
        assert (status["code"], "retryAfterSeconds" in status["details"]) == (code, code == 429)
    here.chosen.choice = None
    gang = {"scheduling.x-k8s.io/pod-group": "gang"}
    assert (await here.delete(a_victim(labels=gang)))["status"]["reason"] == "NotFound"


async def test_one_that_has_changed_meanwhile_is_not_marked_and_waited_for(here: Scene) -> None:
    here.stub.refuses = {f"{TEAM}/train": 409}
    response = await here.delete(a_victim())
    assert response["allowed"] is False


@pytest.mark.parametrize("status", [403, 500])
async def test_where_the_mark_cannot_be_written_it_is_as_if_there_were_no_guard(here: Scene, status: int) -> None:
    here.stub.refuses = {f"{TEAM}/train": status}
    review = a_review(None, old=a_victim(), operation="DELETE", userInfo=SCHEDULER)
    answered, _ = await here.server.send("/guard", json.dumps(review).encode())
    assert answered == 503


async def test_nothing_is_written_on_a_dry_run(here: Scene) -> None:
    assert (await here.delete(a_victim(), dryRun=True))["allowed"] is False
    tried = await here.evict(body={"deleteOptions": {"dryRun": ["All"]}})
    assert tried["allowed"] is True
    assert "asked to save a checkpoint first" in tried["warnings"][0]
    assert here.stub.patches == []


async def test_an_eviction_is_put_off_without_a_time_and_marked_as_a_request(here: Scene) -> None:
    response = await here.evict()
    assert response["status"]["code"] == 429
    assert "retryAfterSeconds" not in response["status"]["details"]
    assert here.stub.patches[0][1]["metadata"]["labels"] == {keys.SOFT_EVICTION: "requested"}


async def test_whom_the_guard_never_touches(here: Scene) -> None:
    by_a_person = {"userInfo": {"username": "jane"}}
    by_the_operator = {"userInfo": {"username": OPERATOR}}
    assert (await here.delete(a_victim(), **by_a_person))["allowed"]
    assert (await here.delete(a_victim(), **by_the_operator))["allowed"]
    assert (await here.evict(**by_the_operator))["allowed"]
    assert (await here.evict("gone"))["allowed"]
    assert (await here.evict("../../secrets"))["allowed"]
    assert (await here.delete(a_victim(deletionTimestamp="2026-11-21T12:00:00Z")))["allowed"]
    assert (await here.server.ask("/guard", a_review(a_victim())))["allowed"]
    here.known.facts = Facts(operator_is_there=False)
    assert (await here.delete(a_victim()))["allowed"]
    assert here.stub.patches == []


async def test_where_enforcement_only_warns_the_pod_goes(here: Scene) -> None:
    here.known.facts = Facts(operator_is_there=True, namespace=NamespacePolicy(enforcement="warn"))
    response = await here.evict()
    assert response["allowed"] is True
    assert "asked to save a checkpoint first" in response["warnings"][0]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"apiVersion":"v1"}',
        b'{"apiVersion":"admission.k8s.io/v1"}',
        b'\xff"',
        b"[" * 100_000,
    ],
    ids=["nothing", "half", "a list", "null", "another kind", "no request", "not UTF-8", "deep"],
)
async def test_what_is_no_review_is_refused(here: Scene, body: bytes) -> None:
    assert (await here.server.send("/guard", body))[0] == 400


async def test_a_pod_of_any_form_is_no_harm(here: Scene) -> None:
    for broken in ({"spec": None}, {"metadata": {"labels": 5}}, {"spec": {"priority": "high"}}, {"status": []}):
        review = a_review(None, old=a_victim() | broken, operation="DELETE", userInfo=SCHEDULER)
        assert (await here.server.send("/guard", json.dumps(review).encode()))[0] == 400
    odd = a_victim(annotations=HINT | {keys.EVICTION: "[" * 5000})
    assert (await here.delete(odd))["allowed"] is False


# Where it is called.


@dataclass
class Stored:
    """A Secret, and the trust that was injected."""

    data: dict[str, bytes]
    injected: list[bytes] = field(default_factory=list)
    version: str = "1"

    async def read(self) -> Any:
        return self

    async def write(self, data: Any, version: str) -> Any:
        raise NotImplementedError

    async def inject(self, trusted_pem: bytes) -> None:
        self.injected.append(trusted_pem)


def a_configuration(*configs: Any) -> Any:
    webhooks = [{"name": f"{number}.reprieve.dev", "clientConfig": config} for number, config in enumerate(configs)]
    return {"metadata": {"name": "reprieve-webhooks"}, "webhooks": webhooks}


async def test_the_api_server_is_told_a_path_that_nobody_can_guess_and_others_are_not_served(tmp_path: Path) -> None:
    where = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    secret = path_of(b"key")
    told = a_configuration(
        {"service": {"path": "/validate"}},
        {"service": {"path": "/guard"}},
        {"url": "https://127.0.0.1:9443/guard"},
        {"url": f"https://127.0.0.1:9443{secret}"},
        {"url": "https://127.0.0.1:9443/guardian"},
    )
    served: list[Sequence[str]] = []
    async with stub_api(tmp_path, collections={where: {"reprieve-webhooks": told}}) as (stub, api):
        store: Any = Stored({"ca.key": b"key"})
        paths = SecretPaths(store, store, api, "reprieve-webhooks", served.append)
        await paths.inject(b"pem")
        ((_, patch),) = stub.patches
        store.data = {"ca.key": b"next", "next-ca.key": b"after"}
        await paths.inject(b"pem")
        store.data = {}
        await paths.inject(b"pem")
    written = {step["path"]: step["value"] for step in patch if step["op"] == "replace"}
    assert written == {
        "/webhooks/1/clientConfig/service/path": secret,
        "/webhooks/2/clientConfig/url": f"https://127.0.0.1:9443{secret}",
    }
    assert len(secret) == len("/guard/") + 32
    # What an API server was told before is answered for a while.
    assert served == [[secret], [path_of(b"next"), path_of(b"after"), secret], served[1]]
    assert store.injected == [b"pem"] * 3


async def test_at_another_path_nobody_is_heard(here: Scene) -> None:
    here.server.webhooks.serve_guard_at([path_of(b"key")])
    review = json.dumps(a_review(None, old=a_victim(), operation="DELETE", userInfo=SCHEDULER)).encode()
    assert (await here.server.send("/guard", review))[0] == 404
    assert (await here.server.send(path_of(b"another"), review))[0] == 404
    assert (await here.server.send(path_of(b"key"), review))[0] == 200
