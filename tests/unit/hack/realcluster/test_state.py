"""A cluster's record is written once, privately, and is never silently changed."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from realcluster import state
from realcluster.errors import ClusterError
from realcluster.state import Cluster, Settings

NOTHING: dict[str, object] = dict.fromkeys(
    ("kwok_nodes", "real_nodes", "feature_gates", "runtime_config", "provider")
)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def a_cluster(name: str = "one", **asked: object) -> Cluster:
    return state.create_or_get(name, NOTHING | asked, None)


def test_a_recorded_cluster_is_found_again() -> None:
    cluster = a_cluster(kwok_nodes=3, feature_gates="GenericWorkload=true")
    assert state.get("one") == cluster
    assert cluster.settings == Settings(kwok_nodes=3, feature_gates="GenericWorkload=true")


def test_asking_for_nothing_agrees_with_any_recorded_cluster() -> None:
    assert a_cluster(kwok_nodes=3) == a_cluster()


def test_asking_for_something_else_is_refused_in_one_sentence_with_both_values() -> None:
    a_cluster(kwok_nodes=3)
    with pytest.raises(
        ClusterError,
        match=r"cluster one exists with --kwok-nodes 3, not 5: `hack/cluster down --name one`",
    ):
        a_cluster(kwok_nodes=5)
    with pytest.raises(ClusterError, match=r"--port-base \d+, not 30000"):
        state.create_or_get("one", NOTHING, 30000)


def test_two_clusters_share_no_ports() -> None:
    one, two = a_cluster("one"), a_cluster("two")
    assert abs(one.port_base - two.port_base) >= 20
    with pytest.raises(ClusterError, match="overlaps the 20 ports of another cluster"):
        state.create_or_get("three", NOTHING, one.port_base + 1)


@pytest.mark.parametrize("name", ["", "..", "A", "a/b", "-a", "a-", "a" * 33])
def test_a_name_that_is_no_label_is_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="must be up to 32 of a-z"):
        a_cluster(name)


def test_an_unknown_cluster_is_refused_with_the_command_that_creates_it() -> None:
    assert state.find("nobody") is None
    with pytest.raises(ClusterError, match=r"`hack/cluster up --name nobody` makes it"):
        state.get("nobody")


def test_every_component_and_possible_node_has_a_token_of_its_own() -> None:
    cluster = a_cluster()
    cluster.write_tokens()
    users = [
        "admin",
        "kwok",
        "system:kube-scheduler",
        "system:kube-controller-manager",
        "system:node:one-real-7",
    ]
    assert len({cluster.token(user) for user in users}) == len(users)
    with pytest.raises(ClusterError, match="has no user stranger"):
        cluster.token("stranger")


def test_tokens_survive_a_second_up() -> None:
    cluster = a_cluster()
    cluster.write_tokens()
    before = cluster.token("admin")
    cluster.write_tokens()
    assert cluster.token("admin") == before


def test_secrets_are_readable_by_their_owner_only() -> None:
    cluster = with_certificate(a_cluster())
    for path in (cluster.home / "tokens.csv", cluster.write_kubeconfig("admin")):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_kubeconfig_is_self_contained() -> None:
    cluster = with_certificate(a_cluster())
    config: dict[str, Any] = json.loads(
        cluster.write_kubeconfig("system:kube-scheduler").read_text()
    )
    (entry,) = config["clusters"]
    assert base64.b64decode(entry["cluster"]["certificate-authority-data"]) == b"certificate"
    assert entry["cluster"]["server"] == cluster.api_server
    assert config["users"][0]["user"]["token"] == cluster.token("system:kube-scheduler")


def test_removal_can_leave_the_logs() -> None:
    cluster = with_certificate(a_cluster())
    (cluster.home / "logs").mkdir()
    cluster.audit_log.write_text("{}")
    cluster.remove(keep_logs=True)
    assert sorted(entry.name for entry in cluster.home.iterdir()) == ["audit.log", "logs"]
    assert state.find("one") is None
    state.forget_logs("one")
    assert not cluster.home.exists()


def test_removal_leaves_nothing() -> None:
    cluster = with_certificate(a_cluster())
    cluster.remove(keep_logs=False)
    assert not cluster.home.exists()


def test_the_logs_of_a_cluster_that_exists_are_not_forgotten() -> None:
    cluster = a_cluster()
    state.forget_logs("one")
    assert state.get("one") == cluster


def with_certificate(cluster: Cluster) -> Cluster:
    cluster.write_tokens()
    cluster.ca_file.parent.mkdir(parents=True)
    cluster.ca_file.write_bytes(b"certificate")
    return cluster


def test_a_claimed_cluster_is_refused_to_other_runs_until_the_claim_ends() -> None:
    refused = pytest.raises(ClusterError, match="cluster mine is in use by another run")
    with state.claimed("mine"), state.claimed("other"), refused, state.claimed("mine"):
        pytest.fail("claimed twice")
    with state.claimed("mine"):
        pass
