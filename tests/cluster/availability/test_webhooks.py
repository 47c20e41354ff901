"""With `failurePolicy: Fail` no creation fails while replicas and certificates are replaced.

Two replicas answer 200 creations a second through their Service. Each creation shows that the
webhooks were asked, and the API server's own counters show no call that failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from cryptography import x509

from reprieve_certs.bundle import Bundle
from reprieve_testing.availability import aged_certificates
from reprieve_testing.availability.creations import CHANGED, DENIED, Creations, creating
from reprieve_testing.availability.replicas import Replica, WebhookReplicas
from reprieve_testing.cluster.handle import ClusterHandle, cluster_for_tests, wait_for

pytestmark = pytest.mark.cluster

REJECTIONS = "apiserver_admission_webhook_rejection_count"
REFUSED = "no_error"
"""The API server's word for a webhook that was called and refused."""
FAIL_OPEN = "apiserver_admission_webhook_fail_open_count"
QUICK = {"serving_ips": "127.0.0.1", "drain_seconds": 3.0, "certificate_check_seconds": 2.0}
ENOUGH = 100
"""Creations on either side of an event, so that it happened under load."""
CA_SECONDS = 240.0
"""A new CA is trusted for a minute before it signs."""


@pytest.fixture(scope="module")
def ours() -> Iterator[ClusterHandle]:
    with cluster_for_tests("test-availability", kwok_nodes=1, variable="") as cluster:
        WebhookReplicas(cluster).install()
        yield cluster


@contextmanager
def two_replicas(
    ours: ClusterHandle, certificates: Bundle | None = None
) -> Iterator[tuple[WebhookReplicas, list[Replica]]]:
    replicas = WebhookReplicas(ours, QUICK)
    if certificates is not None:
        aged_certificates.store(ours, certificates)
    running = [replicas.start(), replicas.start()]
    try:
        with creating(ours.cluster, rate=20) as first:
            wait_for("the API server calls the webhooks", lambda: first.outcomes[DENIED])
        yield replicas, running
    finally:
        replicas.end_all()


def wait_for_more(seen: Creations) -> None:
    """Wait until so many more creations were answered that what follows happens under load."""
    enough = seen.outcomes.total() + ENOUGH
    wait_for(f"{ENOUGH} more creations", lambda: seen.outcomes.total() >= enough)


@contextmanager
def no_failed_call(replicas: WebhookReplicas) -> Iterator[Creations]:
    """Create pods while the block runs; every creation and every call must be answered."""
    before = counted(replicas)
    with creating(replicas.cluster.cluster) as seen:
        wait_for_more(seen)
        yield seen
        wait_for_more(seen)
    assert not seen.failed
    assert min(seen.outcomes[CHANGED], seen.outcomes[DENIED]) >= ENOUGH
    refused = {REFUSED: before[REFUSED] + seen.outcomes[DENIED]}
    assert counted(replicas) == before | refused


def counted(replicas: WebhookReplicas) -> dict[str, float]:
    """Return what the API server has counted: refusals, failed calls, and those let through."""
    kinds = (REFUSED, "calling_webhook_error", "apiserver_internal_error")
    rejections = {kind: replicas.api_server_metric(REJECTIONS, error_type=kind) for kind in kinds}
    return rejections | {"let through": replicas.api_server_metric(FAIL_OPEN)}


def test_a_rolling_update_under_200_requests_a_second_fails_none(ours: ClusterHandle) -> None:
    with two_replicas(ours) as (replicas, before), no_failed_call(replicas):
        after = replicas.replace(before)
    assert not {replica.port for replica in before} & {replica.port for replica in after}


def test_a_new_serving_certificate_under_load_fails_no_call(ours: ClusterHandle) -> None:
    with two_replicas(ours) as (replicas, running), no_failed_call(replicas):
        first = aged_certificates.stored(ours)
        before = served(running)
        aged_certificates.store(ours, aged_certificates.with_old_serving_certificate(first))
        wait_until_all_serve_another(running, before)
        assert signing(ours) == first.ca.certificate


@pytest.mark.slow
def test_a_new_ca_under_load_fails_no_call(ours: ClusterHandle) -> None:
    after, before = aged_certificates.after_a_renewal()
    with two_replicas(ours, after) as (replicas, running), no_failed_call(replicas):
        aged_certificates.store(ours, before)
        wait_for("the next CA", lambda: aged_certificates.stored(ours).next_ca, CA_SECONDS)
        following = aged_certificates.stored(ours).next_ca
        assert following is not None
        wait_for("it signs", lambda: signing(ours) == following.certificate, CA_SECONDS)
        wait_until_all_serve(running, aged_certificates.stored(ours))
        retired = set(aged_certificates.stored(ours).retired)
        assert retired == {before.ca.certificate, after.ca.certificate}


def signing(ours: ClusterHandle) -> x509.Certificate:
    return aged_certificates.stored(ours).ca.certificate


def served(running: Sequence[Replica]) -> set[str]:
    return {replica.serving_certificate() for replica in running}


def wait_until_all_serve_another(running: Sequence[Replica], before: set[str]) -> None:
    wait_for("both replicas serve a new certificate", lambda: not served(running) & before)


def wait_until_all_serve(running: Sequence[Replica], wanted: Bundle) -> None:
    text = wanted.serving.certificate_pem.decode()
    wait_for("both replicas serve it", lambda: served(running) == {text})
