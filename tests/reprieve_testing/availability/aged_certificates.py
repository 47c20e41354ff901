"""Certificates of an installation that is months old, so that a renewal is due soon.

Only the dates differ from what the webhooks issue. They find the Secret filled, as after a restart,
and renew it by their own clock and code.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from realcluster.programs import NAMESPACE, WEBHOOKS
from reprieve_certs import bundle, issue
from reprieve_certs.bundle import Bundle
from reprieve_certs.issue import ServingNames
from reprieve_testing.cluster.handle import ClusterHandle

from .replicas import CERTIFICATES

NAMES = ServingNames((f"{WEBHOOKS}.{NAMESPACE}.svc",), (ip_address("127.0.0.1"),))
"""Those of a replica with `--serving-ips=127.0.0.1`."""


def aged_bundle(
    now: datetime, *, serving_due_in: timedelta, ca_due_in: timedelta | None = None
) -> Bundle:
    """Return a CA and a certificate that enter the last third of their time so long from now."""
    ca_age = timedelta(days=1)
    if ca_due_in is not None:
        ca_age = issue.CA_LIFETIME * 2 / 3 - ca_due_in
    ca = issue.issue_ca(now - ca_age)
    serving_age = issue.SERVING_LIFETIME * 2 / 3 - serving_due_in
    return Bundle(ca, issue.issue_serving(ca, NAMES, now - serving_age))


def store(cluster: ClusterHandle, filled: Bundle) -> None:
    """Write the Secret, before the first replica starts."""
    data = {key: base64.b64encode(text).decode() for key, text in bundle.render(filled).items()}
    cluster.client.patch("secret", CERTIFICATES, {"data": data}, namespace=NAMESPACE)


def stored(cluster: ClusterHandle) -> Bundle:
    """Return what the Secret holds now."""
    found = cluster.kubectl.get("secret", CERTIFICATES, "-n", NAMESPACE)["data"]
    parsed = bundle.parse({key: base64.b64decode(text) for key, text in found.items()})
    assert parsed is not None, "the Secret holds no certificates"
    return parsed


def now() -> datetime:
    return datetime.now(UTC)
