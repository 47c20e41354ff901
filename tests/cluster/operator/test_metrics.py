"""`/metrics` of the operator is for tokens of ServiceAccounts that have the right."""

import ssl
import urllib.request
from collections.abc import Callable, Iterator
from http import HTTPStatus
from urllib.error import HTTPError

import pytest

from reprieve_testing.cluster.handle import ClusterHandle, wait_for
from reprieve_testing.servers.webhook_program import any_certificate

pytestmark = pytest.mark.cluster
ROLE = "reprieve:metrics-reader"

Get = Callable[[str], int]


@pytest.fixture
def get(cluster: ClusterHandle) -> Iterator[Get]:
    """An operator as it is installed; the function returns its answer to a token."""
    operator = cluster.start_operator(metrics_authentication="token")
    operator.wait_ready()
    url = operator.metrics_url.replace("http:", "https:")
    trusting = any_certificate()
    yield lambda token: status_of(url, token, trusting)
    assert operator.stop() == 0


def status_of(url: str, token: str, context: ssl.SSLContext) -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            assert "reprieve_leader" in answer.read().decode()
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_a_service_account_reads_the_metrics_once_the_role_is_bound_to_it(
    cluster: ClusterHandle, namespace: str, get: Get
) -> None:
    account = {"kind": "ServiceAccount", "name": "prometheus", "namespace": namespace}
    cluster.client.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus"}},
        namespace=namespace,
    )
    token = cluster.client.create_token("prometheus", namespace)

    assert get("") == HTTPStatus.UNAUTHORIZED
    assert get(token[:-4]) == HTTPStatus.UNAUTHORIZED
    assert get(token) == HTTPStatus.FORBIDDEN

    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{namespace}-metrics"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ROLE},
        "subjects": [account],
    }
    cluster.client.create(binding)
    try:
        wait_for("the metrics", lambda: get(token) == HTTPStatus.OK)
    finally:
        cluster.client.delete("clusterrolebinding", f"{namespace}-metrics")
