"""Whose credentials count in a pod: those of a kubeconfig, as for kubectl, or the pod's own."""

import json
from pathlib import Path
from typing import Any

import pytest
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.config import incluster_config

from reprieve_runtime.client import login
from reprieve_runtime.client.api import ApiError

THE_PODS_OWN = "https://10.0.0.1:443"
OF_THE_FILE = "https://file.example"


def a_kubeconfig(path: Path) -> Path:
    config: Any = {
        "clusters": [{"name": "c", "cluster": {"server": OF_THE_FILE}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "file"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return path


@pytest.fixture(autouse=True)
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run as in a pod; return the path of the default kubeconfig, which does not exist."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for name in ("token", "ca.crt", "namespace"):
        (tmp_path / name).write_text("pod\n")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    default = tmp_path / "config"
    set_default(monkeypatch, default)
    return default


def set_default(monkeypatch: pytest.MonkeyPatch, location: object) -> None:
    # The client reads HOME and KUBECONFIG as it is imported.
    monkeypatch.setattr(kubernetes_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(location))


async def server(*arguments: Any, prefers_kubeconfig: bool = True) -> object:
    found = await login.connection_configuration(*arguments, prefers_kubeconfig=prefers_kubeconfig)
    return found.host


async def test_a_kubeconfig_counts_before_the_pods_own_account(pod: Path) -> None:
    a_kubeconfig(pod)
    assert (await server(None), login.namespace_of_context(None)) == (OF_THE_FILE, "file")


async def test_without_a_kubeconfig_the_pods_own_account_and_namespace_count() -> None:
    assert (await server(None), login.namespace_of_context(None)) == (THE_PODS_OWN, "pod")


async def test_one_file_of_several_is_a_kubeconfig(
    pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_default(monkeypatch, f"{pod.parent / 'none'}:{a_kubeconfig(pod)}")
    assert (await server(None), login.namespace_of_context(None)) == (OF_THE_FILE, "file")


async def test_an_empty_variable_means_the_file_in_the_home(
    pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_default(monkeypatch, "")
    monkeypatch.setenv("HOME", str(pod.parent))
    assert login.namespace_of_context(None) == "pod"
    (pod.parent / ".kube").mkdir()
    a_kubeconfig(pod.parent / ".kube" / "config")
    assert (await server(None), login.namespace_of_context(None)) == (OF_THE_FILE, "file")


async def test_a_program_of_the_cluster_uses_the_pods_own_account_whatever_files_it_has(
    pod: Path,
) -> None:
    a_kubeconfig(pod)
    assert await server(None, prefers_kubeconfig=False) == THE_PODS_OWN


async def test_a_file_or_a_context_that_is_named_counts_for_every_program(pod: Path) -> None:
    file = a_kubeconfig(pod.parent / "other")
    for prefers_kubeconfig in (True, False):
        assert await server(file, prefers_kubeconfig=prefers_kubeconfig) == OF_THE_FILE
        with pytest.raises(ApiError, match="no kubeconfig at "):
            await server(None, "x", prefers_kubeconfig=prefers_kubeconfig)
    with pytest.raises(ApiError, match="no kubeconfig at "):
        login.namespace_of_context(None, "x")


async def test_a_kubeconfig_that_cannot_be_reached_is_not_replaced_by_another_cluster(
    pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_default(monkeypatch, pod.parent / ("x" * 256))
    with pytest.raises(ApiError, match="file name too long"):
        await server(None)
    with pytest.raises(ApiError, match="file name too long"):
        login.namespace_of_context(None)


def test_a_kubeconfig_that_cannot_be_read_is_named(pod: Path) -> None:
    pod.mkdir()
    with pytest.raises(ApiError) as raised:
        login.namespace_of_context(None)
    assert raised.value.message == f"{pod}: is a directory"


def test_a_pod_without_a_namespace_says_so(pod: Path) -> None:
    (pod.parent / "namespace").unlink()
    with pytest.raises(ApiError, match=r"no kubeconfig, and .*/namespace: no such file"):
        login.namespace_of_context(None)
