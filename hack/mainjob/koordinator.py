"""Stands in for Koordinator's descheduler: its ServiceAccount, its rights, and the mark it writes.

The rights are those of upstream's `config/rbac/descheduler_role.yaml`. The annotation is what its
soft evictor (`pkg/descheduler/controllers/migration/evictor/evictor_soft.go`) makes of
`SoftEvictionSpec`: compact JSON, fields in this order, empty fields left out.
"""

import json
from datetime import UTC, datetime
from typing import Any

from realcluster.client.kubectl import Done

from .installation import DEMO_LABELS
from .session import Session

NAMESPACE, NAME = "koordinator-system", "koord-descheduler"
USER = f"system:serviceaccount:{NAMESPACE}:{NAME}"
ANNOTATION = "scheduling.koordinator.sh/soft-eviction"


def mark(
    session: Session, pod: str, *, reason: str = "node is overutilized", grace_seconds: int = 30
) -> Done:
    """Mark a pod, as the descheduler would and with its rights."""
    session.quiet.apply(*_rights())
    return session.run(
        "annotate",
        "pod",
        pod,
        "-n",
        session.namespace,
        f"{ANNOTATION}={_spec(reason, grace_seconds)}",
        f"--as={USER}",
    )


def _spec(reason: str, grace_seconds: int) -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    options = {"gracePeriodSeconds": grace_seconds}
    spec = {"timestamp": now, "deleteOptions": options, "initiator": NAME, "reason": reason}
    return json.dumps(spec, separators=(",", ":"))


def _rights() -> list[Any]:
    role = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "demo-koord-descheduler",
    }
    metadata = {"name": role["name"], "labels": DEMO_LABELS}
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    ]
    subject = {"kind": "ServiceAccount", "namespace": NAMESPACE, "name": NAME}
    version = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": rules},
        {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [subject],
        },
    ]
