"""AdmissionReviews as kube-apiserver 1.37 sends them, and the real admission server on loopback.

The server needs no API server: a test supplies its facts.
"""

import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp
from prometheus_client import generate_latest

from reprieve_certs import issue
from reprieve_certs.issue import Credential, ServingNames
from reprieve_certs.serving import ServingContext
from reprieve_policy.facts import Facts, GangTraits, JobRequests
from reprieve_policy.kube.objects import Resource
from reprieve_policy.kube.template_kinds import TemplateKinds
from reprieve_runtime.serving.bounded_server import IsTrusted, trusts_no_client
from reprieve_webhooks import listener
from reprieve_webhooks.admission.remembered_pods import RememberedPods
from reprieve_webhooks.admission.review import AdmissionRequest
from reprieve_webhooks.http.routes import RouteHandler
from reprieve_webhooks.metrics import WebhookMetrics
from reprieve_webhooks.server import PodGuard, Webhooks

from . import deep_json

_JSON = {"Content-Type": "application/json"}
LOOPBACK = ServingNames((), (IPv4Address("127.0.0.1"),))
UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
_KINDS = {
    "Pod": ("", "v1", "pods"),
    "Namespace": ("", "v1", "namespaces"),
    "Deployment": ("apps", "v1", "deployments"),
    "Job": ("batch", "v1", "jobs"),
    "PriorityClass": ("scheduling.k8s.io", "v1", "priorityclasses"),
}

Document = dict[str, Any]


def a_pod(
    *, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
) -> Document:
    """Return a Pod as JSON; maps without entries are absent, as in the API server's requests."""
    metadata: Document = {"name": "train", "namespace": "team-a", "creationTimestamp": None}
    metadata |= {
        key: dict(value)
        for key, value in (("labels", labels), ("annotations", annotations))
        if value
    }
    spec = {
        "containers": [{"name": "train", "image": "train"}],
        "priority": 0,
        "schedulerName": "default-scheduler",
    }
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": {}}


def a_review(
    new: Document | None, *, old: Document | None = None, operation: str = "", **changes: Any
) -> Document:
    """Return the review of a CREATE, or of an UPDATE if `old` is given.

    `changes` replace fields of the request.
    """
    kind = (new or old or {}).get("kind", "Pod")
    group, version, resource = _KINDS.get(kind, ("example.com", "v1", "things"))
    metadata = (new or old or {}).get("metadata", {})
    gvk = {"group": group, "version": version, "kind": kind}
    gvr = {"group": group, "version": version, "resource": resource}
    request = {
        "uid": UID,
        "kind": gvk,
        "resource": gvr,
        "requestKind": gvk,
        "requestResource": gvr,
        "name": metadata.get("name", ""),
        "namespace": metadata.get("namespace", ""),
        "operation": operation or ("UPDATE" if old else "CREATE"),
        "userInfo": {
            "username": "kubernetes-admin",
            "groups": ["system:masters", "system:authenticated"],
        },
        "object": new,
        "oldObject": old,
        "dryRun": False,
        "options": {
            "kind": "CreateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "fieldManager": "kubectl-create",
        },
    }
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": request | changes,
    }


def patch_of(response: Document) -> list[Document]:
    """Return the JSON patch of a response; empty without a patch."""
    assert response.get("patchType") == ("JSONPatch" if "patch" in response else None)
    patch: list[Document] = json.loads(base64.b64decode(response.get("patch", "W10=")))
    return patch


@dataclass
class FixedFacts:
    """A `FactsSource` with fixed facts, or with a fixed failure."""

    facts: Facts = field(default_factory=Facts)
    failure: Exception | None = None

    @property
    def template_kinds(self) -> TemplateKinds:
        return self.facts.settings.template_kinds

    @property
    def version(self) -> int:
        """Another number for other facts."""
        return id(self.facts)

    def are_watched(self, namespace: str, facts: Facts) -> bool:  # noqa: ARG002
        return True

    def inherits_nothing(self, pod: Resource, namespace: str) -> bool:  # noqa: ARG002
        return self.facts.ledger_entry is None

    async def facts_for(self, request: AdmissionRequest, resource: Resource) -> Facts:
        assert request.object is resource
        if self.failure is not None:
            raise self.failure
        return self.facts

    async def gang_traits(
        self, request: AdmissionRequest, resource: Resource, facts: Facts
    ) -> GangTraits | None:
        assert (request.object, facts) == (resource, self.facts)
        return self.facts.gang_traits

    async def job_requests(
        self, request: AdmissionRequest, resource: Resource, facts: Facts
    ) -> JobRequests:
        assert (request.object, facts) == (resource, self.facts)
        return self.facts.job_requests


@dataclass
class FixedReadiness:
    """The readiness conditions that a test sets as missing."""

    not_ready: tuple[str, ...] = ()

    def missing(self) -> tuple[str, ...]:
        return self.not_ready


@dataclass
class RunningServer:
    """The server, and a client that verifies its certificate."""

    url: str
    session: aiohttp.ClientSession
    webhooks: Webhooks
    metrics: WebhookMetrics
    serving: ServingContext
    readiness: FixedReadiness
    source: FixedFacts
    ca: Credential
    close: Callable[[], Awaitable[None]]
    """Close the port after the last answer."""

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    async def ask(self, path: str, review: Document) -> Document:
        """Send a review and return its response."""
        async with self.session.post(
            self.url + path, data=deep_json.dumps(review), headers=_JSON
        ) as reply:
            assert reply.status == 200, await reply.text()
            assert reply.content_type == "application/json"
            document = await reply.json()
        assert (document["kind"], document["apiVersion"]) == (
            "AdmissionReview",
            "admission.k8s.io/v1",
        )
        response: Document = document["response"]
        assert response["uid"] == review["request"]["uid"]
        return response

    async def send(
        self, path: str, body: bytes, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """Send any bytes and return status and text."""
        all_headers = {"Content-Type": "application/json"} if headers is None else headers
        async with self.session.post(self.url + path, data=body, headers=all_headers) as reply:
            return reply.status, await reply.text()

    def shown_metrics(self) -> str:
        """Return what `/metrics` shows."""
        return generate_latest(self.metrics.registry).decode()

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(self.url + path) as reply:
            return reply.status, await reply.text()


def trusting(ca: Credential) -> ssl.SSLContext:
    """Return a client's context that trusts this CA only."""
    return ssl.create_default_context(cadata=ca.certificate_pem.decode())


@asynccontextmanager
async def running_server(
    facts: Facts | None = None,
    *,
    max_review_bytes: int = 1024 * 1024,
    read_timeout_seconds: float = 5.0,
    further_routes: Mapping[tuple[str, str], RouteHandler] = MappingProxyType({}),
    guard: PodGuard | None = None,
    client_ca: Path | None = None,
    is_trusted: IsTrusted = trusts_no_client,
    source: FixedFacts | None = None,
) -> AsyncIterator[RunningServer]:
    """Run the real server over TLS on a free port of loopback."""
    source, readiness = source or FixedFacts(facts or Facts()), FixedReadiness()
    serving = ServingContext(client_ca)
    metrics = WebhookMetrics()
    now = datetime.now(UTC)
    ca = issue.issue_ca(now)
    credential = issue.issue_serving(ca, LOOPBACK, now)
    serving.load(credential.certificate_pem, credential.key_pem)
    webhooks = Webhooks(
        source,
        metrics,
        readiness,
        max_review_bytes=max_review_bytes,
        read_timeout_seconds=read_timeout_seconds,
        further_routes=further_routes,
        guard=guard,
        remembered=RememberedPods(source),
        is_trusted=is_trusted,
    )
    if guard is not None:
        webhooks.serve_guard_at(["/guard"])
    port = await listener.listen(
        webhooks, serving.listener, address="127.0.0.1", port=0, is_trusted=is_trusted
    )
    url = f"https://127.0.0.1:{port.port}"
    try:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trusting(ca))
        ) as session:
            yield RunningServer(
                url, session, webhooks, metrics, serving, readiness, source, ca, port.close
            )
    finally:
        await port.close()
