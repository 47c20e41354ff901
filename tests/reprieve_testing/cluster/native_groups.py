"""Kubernetes' own PodGroups and Workloads: how a cluster serves them, and since which version."""

import pytest

from realcluster.binaries.pins import kubernetes_version

_VERSION = kubernetes_version()
_ARE_SERVED = tuple(int(part) for part in _VERSION.lstrip("v").split(".")[:2]) >= (1, 37)

SWITCHES = (
    "--feature-gates",
    "GenericWorkload=true",
    "--runtime-config",
    "scheduling.k8s.io/v1beta1=true",
)
"""Words of `hack/cluster up`."""
SWITCHES_WHERE_SERVED = SWITCHES if _ARE_SERVED else ()

needs_native_groups = pytest.mark.skipif(
    not _ARE_SERVED, reason=f"Kubernetes {_VERSION} has no PodGroup and no Workload in v1beta1"
)
