"""`make demo KUBECONFIG=…` in an existing cluster: it asks, shows what it can, and cleans up."""

import io
from collections.abc import Iterator

import pytest

from mainjob import existing_cluster
from mainjob.narrator import Narrator
from realcluster import install
from realcluster.binaries import build
from realcluster.client.kubectl import Kubectl
from realcluster.errors import ClusterError
from realcluster.progress import Progress
from realcluster.state import Cluster
from reprieve_testing.cluster.handle import new_cluster

CLUSTER = "reprieve-elsewhere"

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Cluster]:
    with new_cluster(CLUSTER, kwok_nodes=1) as cluster:
        yield cluster


@pytest.fixture
def kubectl(elsewhere: Cluster) -> Kubectl:
    return Kubectl(build.bin_directory() / "kubectl", elsewhere.kubeconfig)


@pytest.fixture
def consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(existing_cluster.CONSENT, "1")


def traces(kubectl: Kubectl) -> list[str]:
    """Return the names of all that the demo could have left behind."""
    kinds = (
        "namespaces,clusterroles,clusterrolebindings,priorityclasses,mutatingwebhookconfigurations,"
        "validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings"
    )
    found = kubectl.read("get", kinds, "-o", "name").split()
    return [name for name in found if "reprieve" in name or "demo" in name]


def run_demo(cluster: Cluster) -> tuple[int, str]:
    output = io.StringIO()
    return existing_cluster.run(cluster.kubeconfig, Narrator(output), Progress()), output.getvalue()


def test_without_a_confirmation_nothing_is_changed(
    elsewhere: Cluster, kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(existing_cluster.CONSENT, raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(ClusterError, match="set REPRIEVE_YES=1 to agree"):
        run_demo(elsewhere)
    assert traces(kubectl) == []


@pytest.mark.usefixtures("consent")
def test_the_admission_chapters_are_shown_and_nothing_is_left_behind(
    elsewhere: Cluster, kubectl: Kubectl
) -> None:
    status, said = run_demo(elsewhere)
    assert status == 0
    assert [line[:4] for line in said.splitlines() if line.startswith("ok ")] == [
        "ok 1",
        "ok 2",
        "ok 3",
    ]
    assert "3 of 7 chapters" in said
    assert traces(kubectl) == []


@pytest.mark.usefixtures("consent")
def test_an_existing_installation_is_left_alone(elsewhere: Cluster, kubectl: Kubectl) -> None:
    kubectl.read("apply", "-f", install.NAMESPACE_FILE)
    with pytest.raises(ClusterError, match="would overwrite an installation"):
        run_demo(elsewhere)
    assert traces(kubectl) == ["namespace/reprieve-system"]
    kubectl.read("delete", "-f", install.NAMESPACE_FILE)


@pytest.mark.slow
@pytest.mark.usefixtures("consent")
def test_a_cluster_that_cannot_reach_this_machine_gets_instructions(
    elsewhere: Cluster, kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainjob.installation.EFFECTIVE_SECONDS", 3.0)
    # The webhooks are then called at an address where no server listens.
    monkeypatch.setattr(install, "LOCAL_URL", "https://no-such-text/")
    with pytest.raises(ClusterError, match=r"does not reach .*kubectl apply -k manifests/base"):
        run_demo(elsewhere)
    assert traces(kubectl) == []
