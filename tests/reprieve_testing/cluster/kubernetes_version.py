"""What an older Kubernetes under test has not (`make test-version`)."""

import pytest

from realcluster.binaries.pins import kubernetes_version


def is_since(minor: int) -> bool:
    """True if Kubernetes 1.`minor` or a newer one is tested."""
    return tuple(int(part) for part in kubernetes_version()[1:].split(".")[:2]) >= (1, minor)


def needs_kubernetes(minor: int, what: str) -> pytest.MarkDecorator:
    """Skip a test on versions before 1.`minor`, which have no `what`."""
    return pytest.mark.skipif(
        not is_since(minor), reason=f"Kubernetes {kubernetes_version()} has no {what}"
    )


NATIVE_GROUPS_SINCE = 37
NATIVE_GROUPS = (
    (
        "--feature-gates",
        "GenericWorkload=true",
        "--runtime-config",
        "scheduling.k8s.io/v1beta1=true",
    )
    if is_since(NATIVE_GROUPS_SINCE)
    else ()
)
"""Words of `hack/cluster up` with which Kubernetes' own PodGroups and Workloads are served; none on
versions that do not have them."""
needs_native_groups = needs_kubernetes(
    NATIVE_GROUPS_SINCE, "PodGroup and no Workload in scheduling.k8s.io/v1beta1"
)
