"""The scheduler's configuration is the user's; only the connection to the cluster is added."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from realcluster import state
from realcluster.control_plane import scheduler_config
from realcluster.errors import ClusterError

KUBECONFIG = Path("/kubeconfigs/scheduler.yaml")
HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "profiles": [{"schedulerName": "other"}]}
TEXTS = {"block YAML": yaml.safe_dump(HEAD).rstrip(), "JSON": json.dumps(HEAD)}
OWN = {"clientConnection": {"kubeconfig": "mine.yaml"}}


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "scheduler.yaml"


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_the_user_wrote_stays_and_the_kubeconfig_is_added(file: Path, text: str) -> None:
    file.write_text(text)
    cluster = state.create_or_get("one", {"scheduler_config": str(file)}, None)
    written = scheduler_config.write(cluster, KUBECONFIG)
    assert yaml.safe_load(written.read_text()) == HEAD | {
        "clientConnection": {"kubeconfig": str(KUBECONFIG)}
    }


def test_the_file_is_read_at_each_start(file: Path) -> None:
    cluster = state.create_or_get("one", {"scheduler_config": str(file)}, None)
    for name in ("first", "second"):
        file.write_text(f"profiles: [{{schedulerName: {name}}}]")
        assert name in scheduler_config.write(cluster, KUBECONFIG).read_text()


@pytest.mark.parametrize("render", [yaml.safe_dump, json.dumps])
def test_a_client_connection_of_its_own_is_refused(file: Path, render: object) -> None:
    assert callable(render)
    file.write_text(render(HEAD | OWN))
    with pytest.raises(ClusterError, match=r"has a clientConnection, which `up` writes: remove it"):
        scheduler_config.check(file)


def test_half_a_document_is_refused(file: Path) -> None:
    file.write_text('{"profiles": ')
    with pytest.raises(ClusterError, match="begins like JSON but is not JSON"):
        scheduler_config.check(file)
