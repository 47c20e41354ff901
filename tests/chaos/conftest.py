"""A cluster of its own: its API server and etcd are killed. If it cannot start, tests fail.

The failure names the reason. `REPRIEVE_TEST_CLUSTER` names another cluster, which the tests leave
running: a second run then starts faster.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from reprieve_runtime.client.api import Api
from reprieve_testing.chaos.chaos_namespace import ChaosNamespace
from reprieve_testing.chaos.chaos_runner import ChaosRunner
from reprieve_testing.chaos.proxy import ApiProxy
from reprieve_testing.chaos.scripted_victims import WorkloadServer
from reprieve_testing.cluster.handle import ClusterHandle, Program, cluster_for_tests

NAME = "reprieve-chaos"
KWOK_NODES = 4


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterHandle]:
    """A cluster of simulated nodes with the operator's rights; the tests start the operators."""
    with cluster_for_tests(NAME, kwok_nodes=KWOK_NODES) as handle:
        handle.install_operator_rights()
        yield handle


@pytest.fixture
async def namespace(cluster: ClusterHandle) -> AsyncIterator[ChaosNamespace]:
    """A namespace for one test, which no operator outlives."""
    cluster.set_policy(extensionPercent="100", ceiling="10m")
    api = await Api.connect(cluster.cluster.kubeconfig, user_agent="chaos")
    with cluster.namespace("chaos") as name:
        yield ChaosNamespace(api, name, KWOK_NODES)
        cluster.stop_programs()
    await api.close()


@pytest.fixture
async def proxy(cluster: ClusterHandle) -> AsyncIterator[ApiProxy]:
    """What stands between operators and the API server."""
    async with ApiProxy(cluster.cluster.api_server, cluster.cluster.ca_file) as proxy:
        yield proxy


@pytest.fixture
def kubeconfig(cluster: ClusterHandle, proxy: ApiProxy, tmp_path: Path) -> Path:
    """The operator's credentials, by way of the proxy."""
    return proxy.kubeconfig(
        cluster.account_kubeconfig("reprieve-operator"), tmp_path / "kubeconfig"
    )


@pytest.fixture
async def chaos_runner(
    cluster: ClusterHandle, namespace: ChaosNamespace, proxy: ApiProxy, kubeconfig: Path
) -> AsyncIterator[ChaosRunner]:
    """Creates victims, with operators that reach the API server through the proxy."""

    def start(**settings: object) -> Program:
        usual: dict[str, object] = {
            "kubeconfig": kubeconfig,
            "sweep_interval_seconds": 5,
        }
        # A successor waits for the end of the Lease, hundreds of times.
        usual |= {"renew_deadline_seconds": 4.0, "lease_duration_seconds": 5}
        return cluster.start_operator(**usual | settings)

    async with WorkloadServer() as workloads:
        chaos_runner = ChaosRunner(namespace, workloads, start, cluster.cluster.audit_log)
        proxy.before, proxy.after = chaos_runner.before, chaos_runner.after
        yield chaos_runner
        # In a thread, because the proxy answers meanwhile. Without this, no operator gives its
        # Lease back, and a Lease of two minutes outlasts the timeouts of each test after it: each
        # new operator waits for all of it again.
        await asyncio.to_thread(cluster.stop_programs)


@pytest.fixture
def say(capfd: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Show how far a long test is."""

    def show(text: str) -> None:
        with capfd.disabled():
            print(f"  {text}", flush=True)  # noqa: T201 - progress for the person who waits

    return show
