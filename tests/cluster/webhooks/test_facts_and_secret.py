"""What the admission server knows and keeps, on a real API server: facts, the Secret, the
`caBundle`.
"""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio

from reprieve_certs import issue
from reprieve_certs.inject import WebhookConfigurations
from reprieve_certs.issue import ServingNames
from reprieve_certs.rotator import Rotator, WriteConflict
from reprieve_certs.serving import ServingContext
from reprieve_certs.store import KubernetesSecretStore, MissingSecret
from reprieve_policy import keys
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import ObjectMeta, OwnerReference, Resource, Spec
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.policy_config_map import PolicyConfigMap
from reprieve_testing.cluster.connection import connected
from reprieve_testing.cluster.handle import ClusterHandle
from reprieve_webhooks.admission.review import AdmissionRequest, GroupVersionKind
from reprieve_webhooks.facts.cluster_facts import ClusterFacts

pytestmark = pytest.mark.cluster

T = TypeVar("T")

CONFIG_MAP = "reprieve-policy-of-a-test"
NAMES = ServingNames(("reprieve-webhooks.test.svc",))
LEDGER = '{"v":1,"slots":{"":{"count":2,"first":"2026-01-02T03:04:05Z","last":["e"],"ids":["e"]}}}'


@pytest.fixture
def namespace(cluster: ClusterHandle) -> Iterator[str]:
    with cluster.namespace("webhooks") as name:
        yield name


@pytest_asyncio.fixture
async def api(cluster: ClusterHandle) -> AsyncIterator[Api]:
    async with connected(cluster.cluster.kubeconfig) as api:
        yield api


class Watched:
    """Facts of a running cluster, and how often its ConfigMap was refused."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.refused = 0
        self.facts = ClusterFacts(
            api, namespace, CONFIG_MAP, lookup_timeout_seconds=5.0, show_policy=self._show
        )

    def _show(self, policy: PolicyConfigMap) -> None:
        self.refused += not policy.effective.is_config_map_valid

    async def is_synced(self) -> bool:
        return self.facts.is_synced

    async def is_refused(self) -> bool:
        return self.refused > 0

    async def of(self, resource: Resource, namespace: str) -> Facts:
        request = AdmissionRequest(
            uid="1", operation="CREATE", kind=GroupVersionKind(resource.kind), namespace=namespace
        )
        return await self.facts.facts_for(request, resource)


@asynccontextmanager
async def watching(api: Api, namespace: str) -> AsyncIterator[Watched]:
    """Run the watches for the block, and begin it when they are complete."""
    watched = Watched(api, namespace)
    running = asyncio.create_task(watched.facts.run())
    try:
        await until("complete lists", watched.is_synced)
        yield watched
    finally:
        running.cancel()
        await asyncio.wait([running])


async def until(what: str, find: Callable[[], Awaitable[T]], seconds: float = 60.0) -> T:
    """Return the first true result of `find`; `what` names it if the time runs out."""
    try:
        async with asyncio.timeout(seconds):
            while not (found := await find()):  # noqa: ASYNC110 - another process knows, not an event
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None
    return found


async def apply(cluster: ClusterHandle, *documents: dict[str, Any]) -> None:
    for document in documents:
        await asyncio.to_thread(cluster.kubectl.apply, document)


def a_pod(**fields: Any) -> Resource:
    return Resource(kind="Pod", metadata=ObjectMeta(name="p", **fields), spec=Spec())


def a_document(kind: str, name: str, api_version: str = "v1", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name} | fields.pop("metadata", {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata} | fields


async def test_an_object_that_no_watch_has_seen_is_read_once(
    api: Api, cluster: ClusterHandle, namespace: str
) -> None:
    sensitive = {keys.WORKLOAD_TYPE: "sensitive"}
    priority_class = a_document(
        "PriorityClass", f"{namespace}-defence", "scheduling.k8s.io/v1", value=7
    )
    async with watching(api, namespace) as blind:
        pass
    # Its watches have ended: what it knows of these, it has just read.
    with cluster.namespace("unseen") as unseen:
        await apply(
            cluster,
            a_document("Namespace", unseen, metadata={"annotations": sensitive}),
            priority_class,
        )
        pod = a_pod(annotations={keys.PREEMPTION_PRIORITY_CLASS: f"{namespace}-defence"})
        facts = await blind.of(pod, unseen)

    assert facts.namespace.is_sensitive
    assert facts.priority_classes[f"{namespace}-defence"].value == 7


@pytest.mark.parametrize("name", ["none", "..", "../../../api/v1/secrets", "", "Ä", "a/b?c=d"])
async def test_a_missing_priority_class_of_any_name_counts_as_absent(
    api: Api, namespace: str, name: str
) -> None:
    async with watching(api, namespace) as watched:
        facts = await watched.of(
            a_pod(annotations={keys.PREEMPTION_PRIORITY_CLASS: name}), namespace
        )

    assert facts.priority_classes.get(name) is None


async def test_facts_that_cannot_be_read_are_not_guessed(namespace: str, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        '{"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],"users":[{"name":"u","user":{}}],'
        '"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x"}'
    )
    async with connected(config) as nowhere:
        with pytest.raises(ApiError):
            await Watched(nowhere, namespace).of(a_pod(), namespace)


async def test_a_changed_namespace_is_known_without_a_read(
    api: Api, cluster: ClusterHandle, namespace: str
) -> None:
    async with watching(api, namespace) as watched:
        warn = {keys.ENFORCEMENT: "warn"}
        await apply(cluster, a_document("Namespace", namespace, metadata={"annotations": warn}))

        async def warns() -> bool:
            return (await watched.of(a_pod(), namespace)).namespace.enforcement == "warn"

        await until("the namespace only warns", warns)


async def test_an_invalid_policy_leaves_the_last_valid_one_in_force(
    api: Api, cluster: ClusterHandle, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    in_namespace = {"metadata": {"namespace": namespace}}
    async with watching(api, namespace) as watched:
        assert (await watched.of(a_pod(), namespace)).settings.default_class == 4
        for data in ({"defaultPreemptionClass": "2"}, {"defaultPreemptionClass": "11"}):
            await apply(cluster, a_document("ConfigMap", CONFIG_MAP, data=data, **in_namespace))
        with caplog.at_level(logging.ERROR):
            await until("the bad one is refused", watched.is_refused)

        assert (await watched.of(a_pod(), namespace)).settings.default_class == 2


async def test_a_replacement_inherits_from_its_own_owner_only(
    api: Api, cluster: ClusterHandle, namespace: str
) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}
    job = a_document(
        "Job",
        "train",
        "batch/v1",
        metadata={
            "namespace": namespace,
            "labels": {keys.LEDGER: "true"},
            "annotations": {keys.LEDGER: LEDGER},
        },
        spec={"suspend": True, "template": template},
    )
    async with watching(api, namespace) as watched:
        await apply(cluster, job)
        uid = (await asyncio.to_thread(cluster.kubectl.get, "job", "train", "-n", namespace))[
            "metadata"
        ]["uid"]

        async def inherited(owner_uid: str) -> Any:
            owner = OwnerReference(kind="Job", name="train", uid=owner_uid, controller=True)
            return (await watched.of(a_pod(ownerReferences=(owner,)), namespace)).ledger_entry

        found = await until("the ledger is known", partial(inherited, uid))
        assert found.preempted_count == 2
        assert not await inherited("uid-of-an-earlier-job")


def a_configuration(kind: str, name: str) -> dict[str, Any]:
    webhook = {
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "rules": [
            {
                "apiGroups": ["none.test"],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["x"],
            }
        ],
    }
    webhooks = [{"name": f"{number}.test.reprieve.dev", **webhook} for number in range(2)]
    return a_document(kind, name, "admissionregistration.k8s.io/v1", webhooks=webhooks)


@pytest_asyncio.fixture
async def configurations(cluster: ClusterHandle, namespace: str) -> AsyncIterator[str]:
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    for kind in kinds:
        for name in (namespace, f"{namespace}-of-others"):
            await apply(cluster, a_configuration(kind, name))
    yield namespace
    for kind in kinds:
        await asyncio.to_thread(
            cluster.kubectl.run, "delete", kind, namespace, f"{namespace}-of-others"
        )


def a_rotator(api: Api, namespace: str, serving: ServingContext) -> Rotator:
    return Rotator(
        KubernetesSecretStore(api, namespace, "certs"),
        WebhookConfigurations(api, namespace),
        serving,
        NAMES,
        clock=partial(datetime.now, UTC),
        count_failure=lambda: None,
    )


async def test_two_replicas_fill_an_empty_secret_once_and_inject_only_our_webhooks(
    api: Api, cluster: ClusterHandle, configurations: str
) -> None:
    secret = a_document(
        "Secret", "certs", metadata={"namespace": configurations, "labels": {"kept": "yes"}}
    )
    await apply(cluster, secret)
    contexts = ServingContext(), ServingContext()
    await asyncio.gather(
        *(a_rotator(api, configurations, context).ensure() for context in contexts)
    )
    # What a second `kubectl apply` of the manifests does: the empty Secret again.
    await apply(cluster, secret)

    stored = await asyncio.to_thread(cluster.kubectl.get, "secret", "certs", "-n", configurations)
    assert set(stored["data"]) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert stored["metadata"]["labels"] == {"kept": "yes"}
    assert contexts[0]._loaded == contexts[1]._loaded
    trusted = base64.b64decode(stored["data"]["ca.crt"])
    assert await WebhookConfigurations(api, configurations).read() == [trusted] * 4
    assert await WebhookConfigurations(api, f"{configurations}-of-others").read() == [b""] * 4


async def test_nothing_is_written_if_nothing_differs(
    api: Api, cluster: ClusterHandle, configurations: str
) -> None:
    await apply(cluster, a_document("Secret", "certs", metadata={"namespace": configurations}))
    rotator = a_rotator(api, configurations, ServingContext())

    async def versions() -> list[str]:
        kinds = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
        calls = [
            ("secret", "certs", "-n", configurations),
            *((kind, configurations) for kind in kinds),
        ]
        found = [await asyncio.to_thread(cluster.kubectl.get, *words) for words in calls]
        return [item["metadata"]["resourceVersion"] for item in found]

    await rotator.ensure()
    before = await versions()
    await rotator.ensure()

    assert await versions() == before


async def test_a_conflicting_write_is_reported_to_its_writer(
    api: Api, cluster: ClusterHandle, namespace: str
) -> None:
    await apply(cluster, a_document("Secret", "certs", metadata={"namespace": namespace}))
    store = KubernetesSecretStore(api, namespace, "certs")
    stored = await store.read()
    pem = issue.issue_ca(datetime.now(UTC)).certificate_pem
    written = await store.write({"ca.crt": pem, "next-ca.crt": pem}, stored.version)

    with pytest.raises(WriteConflict):
        await store.write({"ca.crt": b"late"}, stored.version)
    assert (await store.read()).data == {"ca.crt": pem, "next-ca.crt": pem}
    assert (await store.write({"ca.crt": pem}, written.version)).data == {"ca.crt": pem}


async def test_a_missing_secret_is_reported_with_the_next_step(api: Api, namespace: str) -> None:
    with pytest.raises(
        MissingSecret, match=f"Secret {namespace}/certs not found: apply the manifests"
    ):
        await KubernetesSecretStore(api, namespace, "certs").read()
