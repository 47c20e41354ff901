"""Certificates that are months old, so that a renewal is due at once.

Only the dates differ from what the webhooks issue. They find these in their Secret, as if a backup
of it had been put back, and renew them by their own clock and code.
"""

from __future__ import annotations

import base64
from dataclasses import replace
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
_DUE = timedelta(days=1)
"""For so long, the renewal has been due."""


def with_old_serving_certificate(current: Bundle) -> Bundle:
    """Return the bundle with a serving certificate of the same CA whose renewal is due."""
    issued_at = datetime.now(UTC) - issue.SERVING_LIFETIME * 2 / 3 - _DUE
    return replace(current, serving=issue.issue_serving(current.ca, NAMES, issued_at))


def after_a_renewal() -> tuple[Bundle, Bundle]:
    """Return what a renewal of the CA left, and what was there before it.

    The old CA is due, and still trusted; so is the new one in the bundle of before, as it is where
    that is put back.
    """
    now = datetime.now(UTC)
    old, new = issue.issue_ca(now - issue.CA_LIFETIME * 2 / 3 - _DUE), issue.issue_ca(now)
    after = Bundle(new, issue.issue_serving(new, NAMES, now), None, (old.certificate,))
    before = Bundle(old, issue.issue_serving(old, NAMES, now), None, (new.certificate,))
    return after, before


def store(cluster: ClusterHandle, filled: Bundle) -> None:
    """Write the Secret."""
    data = {key: base64.b64encode(text).decode() for key, text in bundle.render(filled).items()}
    cluster.client.patch("secret", CERTIFICATES, {"data": data}, namespace=NAMESPACE)


def stored(cluster: ClusterHandle) -> Bundle:
    """Return what the Secret holds now."""
    found = cluster.kubectl.get("secret", CERTIFICATES, "-n", NAMESPACE)["data"]
    parsed = bundle.parse({key: base64.b64decode(text) for key, text in found.items()})
    assert parsed is not None, "the Secret holds no certificates"
    return parsed
