"""How an API server treats a failing webhook, and what a webhook knows without its API server."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from realcluster.client.kubectl import Done
from reprieve_policy import keys
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import ObjectMeta, Resource, Spec
from reprieve_runtime.client.api import ApiError
from reprieve_testing.cluster.connection import connected
from reprieve_testing.cluster.handle import ClusterHandle
from reprieve_testing.servers.reviews import RunningServer, running_server
from reprieve_webhooks.admission.review import AdmissionRequest, GroupVersionKind
from reprieve_webhooks.facts.cluster_facts import ClusterFacts

pytestmark = pytest.mark.cluster

NAME = "reprieve-test-failing"
FAIL_OPEN = 'apiserver_admission_webhook_fail_open_count{name="failing.test.reprieve.dev",'
ERRORS = 'reprieve_admission_reviews_total{kind="Pod",outcome="error",webhook="validate"}'


class Raising(Mapping[str, Any]):
    """Facts that a rule trips over."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("broken")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("broken")

    def __len__(self) -> int:
        raise RuntimeError("broken")


@pytest.fixture
def namespace(cluster: ClusterHandle) -> Iterator[str]:
    with cluster.namespace("failing") as name:
        yield name


async def until(what: str, holds: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not await holds():  # noqa: ASYNC110 - another process knows, not an event
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None


@asynccontextmanager
async def called_by(
    cluster: ClusterHandle, namespace: str, server: RunningServer, policy: str
) -> AsyncIterator[None]:
    """Let the API server send reviews of this namespace's pods to `server`, for the block."""
    ca = base64.b64encode(server.ca.certificate_pem).decode()
    webhook = {
        "name": "failing.test.reprieve.dev",
        "clientConfig": {"url": f"{server.url}/validate", "caBundle": ca},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
            }
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "failurePolicy": policy,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = "ValidatingWebhookConfiguration"
    document = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": NAME},
    }
    await asyncio.to_thread(cluster.kubectl.apply, {**document, "webhooks": [webhook]})
    try:
        yield
    finally:
        await asyncio.to_thread(cluster.kubectl.read, "delete", kind, NAME)


async def create(cluster: ClusterHandle, namespace: str, preemption_class: str) -> Done:
    metadata = {
        "name": "asks",
        "labels": {keys.PREEMPTION_CLASS: preemption_class},
        "annotations": {keys.PREEMPTION_PRIORITY_CLASS: "high"},
    }
    spec = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    words = ("create", "-n", namespace, "--dry-run=server", "-f", "-")
    return await asyncio.to_thread(cluster.kubectl.run, *words, stdin=json.dumps(pod))


@pytest.mark.parametrize(("policy", "is_admitted"), [("Ignore", True), ("Fail", False)])
async def test_if_a_rule_raises_the_failure_policy_decides_and_the_process_continues(
    cluster: ClusterHandle, namespace: str, policy: str, *, is_admitted: bool
) -> None:
    async with running_server() as server, called_by(cluster, namespace, server, policy):

        async def is_refused() -> bool:
            return "must be between 0 and 10" in (await create(cluster, namespace, "11")).output

        await until("a working rule refuses", is_refused)
        server.source.facts = Facts(priority_classes=Raising())
        done = await create(cluster, namespace, "3")
        assert (done.status == 0) is is_admitted, done.output
        assert ("failed calling webhook" in done.output) is not is_admitted
        assert f"{ERRORS} 1.0" in server.shown_metrics()
        # The alert ReprieveWebhooksFailOpen counts by this metric of the API server.
        counted = await asyncio.to_thread(cluster.kubectl.read, "get", "--raw", "/metrics")
        assert (FAIL_OPEN in counted) or not is_admitted
        server.source.facts = Facts()
        # This last answer closes the API server's connection before the port is closed.
        server.webhooks.is_draining = True

        assert await is_refused()


async def test_known_facts_apply_during_an_outage_of_the_api_server_and_are_updated_after_it(
    cluster: ClusterHandle, namespace: str
) -> None:
    async with connected(cluster.cluster.kubeconfig) as api:
        facts = ClusterFacts(api, namespace, "none", lookup_timeout_seconds=1.0)
        running = asyncio.create_task(facts.run())

        async def enforcement(of: str) -> str:
            request = AdmissionRequest(
                uid="1", operation="CREATE", kind=GroupVersionKind("Pod"), namespace=of
            )
            pod = Resource(kind="Pod", metadata=ObjectMeta(name="p"), spec=Spec())
            return (await facts.facts_for(request, pod)).namespace.enforcement

        async def is_warning() -> bool:
            return await enforcement(namespace) == "warn"

        async def annotate(text: str) -> bool:
            words = (
                "annotate",
                "namespace",
                namespace,
                "--overwrite",
                f"{keys.ENFORCEMENT}={text}",
            )
            return (await asyncio.to_thread(cluster.kubectl.run, *words)).status == 0

        try:
            assert await annotate("warn")
            await until("the policy is known", is_warning)
            await asyncio.to_thread(cluster.kill_component, "kube-apiserver")
            try:
                age = max(watch.age_seconds for watch in facts.watches().values())
                assert await is_warning()
                with pytest.raises(ApiError):
                    await enforcement("unheard-of")

                async def is_older() -> bool:
                    return min(watch.age_seconds for watch in facts.watches().values()) > age

                await until("the age of facts grows", is_older)
            finally:
                await asyncio.to_thread(cluster.start_component, "kube-apiserver")
            await until("a change afterwards", lambda: annotate("enforce"))

            async def is_caught_up() -> bool:
                return not await is_warning()

            await until("the change is known", is_caught_up)
        finally:
            running.cancel()
            await asyncio.wait([running])
