"""With `failurePolicy: Fail` no creation fails while replicas and certificates are replaced.

Two replicas answer 200 creations a second through their Service. Each creation shows that the
webhooks were asked, and the API server's own counters show no call that failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import pytest

from reprieve_certs.bundle import Bundle
from reprieve_testing.availability import aged_certificates
from reprieve_testing.availability.creations import CHANGED, DENIED, Creations, creating
from reprieve_testing.availability.replicas import Replica, WebhookReplicas
from reprieve_testing.cluster.handle import ClusterHandle, cluster_for_tests, wait_for

pytestmark = pytest.mark.cluster

REJECTIONS = "apiserver_admission_webhook_rejection_count"
FAIL_OPEN = "apiserver_admission_webhook_fail_open_count"
QUICK = {"serving_ips": "127.0.0.1", "drain_seconds": 3.0, "certificate_check_seconds": 2.0}
ENOUGH = 100
"""Creations on either side of an event, so that it happened under load."""
SOON = timedelta(seconds=20)
"""From the writing of the Secret; two replicas are ready earlier."""
RENEWAL_SECONDS = 60.0
CA_SECONDS = 240.0
"""A new CA is trusted for a minute before it signs."""


@pytest.fixture(scope="module")
def ours() -> Iterator[ClusterHandle]:
    with cluster_for_tests("test-availability", kwok_nodes=1, variable="") as cluster:
        yield cluster


@contextmanager
def two_replicas(
    ours: ClusterHandle, certificates: Bundle | None = None, **settings: object
) -> Iterator[tuple[WebhookReplicas, list[Replica]]]:
    replicas = WebhookReplicas(ours, QUICK | settings)
    replicas.install()
    if certificates is not None:
        aged_certificates.store(ours, certificates)
    running = [replicas.start(), replicas.start()]
    try:
        with creating(ours.cluster, rate=20) as first:
            wait_for("the API server calls the webhooks", lambda: first.outcomes[DENIED])
        yield replicas, running
    finally:
        replicas.remove()


def wait_for_more(seen: Creations) -> None:
    """Wait until so many more creations were answered that what follows happens under load."""
    enough = seen.outcomes.total() + ENOUGH
    wait_for(f"{ENOUGH} more creations", lambda: seen.outcomes.total() >= enough)


@contextmanager
def no_failed_call(replicas: WebhookReplicas) -> Iterator[Creations]:
    """Create pods while the block runs; every creation and every call must be answered."""
    calls = FailedCalls(replicas)
    before = calls.count()
    with creating(replicas.cluster.cluster) as seen:
        wait_for_more(seen)
        yield seen
        wait_for_more(seen)
    assert not seen.failed
    assert min(seen.outcomes[CHANGED], seen.outcomes[DENIED]) >= ENOUGH
    assert calls.count() == before


class FailedCalls:
    """What the API server has counted: calls that failed, refused or let through."""

    def __init__(self, replicas: WebhookReplicas) -> None:
        self._metric = replicas.api_server_metric

    def count(self) -> dict[str, float]:
        kinds = ("calling_webhook_error", "apiserver_internal_error")
        counted = {kind: self._metric(REJECTIONS, error_type=kind) for kind in kinds}
        return counted | {"let through": self._metric(FAIL_OPEN)}


def test_a_rolling_update_under_200_requests_a_second_fails_none(ours: ClusterHandle) -> None:
    with two_replicas(ours) as (replicas, before), no_failed_call(replicas):
        after = replicas.replace(before)
    assert not {replica.port for replica in before} & {replica.port for replica in after}


def test_a_new_serving_certificate_under_load_fails_no_call(ours: ClusterHandle) -> None:
    aged = aged_certificates.aged_bundle(aged_certificates.now(), serving_due_in=SOON)
    with two_replicas(ours, aged) as (replicas, running), no_failed_call(replicas):
        old = aged.serving.certificate_pem.decode()
        assert served(running) == {old}, "it was renewed before the load began"
        wait_until_all_serve_another(running, old)
    assert aged_certificates.stored(ours).ca.certificate == aged.ca.certificate


@pytest.mark.slow
def test_a_new_ca_under_load_fails_no_call(ours: ClusterHandle) -> None:
    aged = aged_certificates.aged_bundle(
        aged_certificates.now(), serving_due_in=SOON + timedelta(seconds=10), ca_due_in=SOON
    )
    with two_replicas(ours, aged) as (replicas, running), no_failed_call(replicas):
        assert aged_certificates.stored(ours).next_ca is None, "the load began too late"
        wait_until_all_serve_another(running, aged.serving.certificate_pem.decode())
        renewed = aged_certificates.stored(ours)
        assert renewed.ca.certificate == aged.ca.certificate
        assert renewed.next_ca is not None
        wait_until_all_serve_another(running, renewed.serving.certificate_pem.decode())
    replaced = aged_certificates.stored(ours)
    assert replaced.ca.certificate == renewed.next_ca.certificate
    assert replaced.retired == (aged.ca.certificate,)


def served(running: Sequence[Replica]) -> set[str]:
    return {replica.serving_certificate() for replica in running}


def wait_until_all_serve_another(running: Sequence[Replica], old: str) -> None:
    wait_for(
        "both replicas serve the same new certificate",
        lambda: old not in (now := served(running)) and len(now) == 1,
        CA_SECONDS,
    )
