"""The API server accepts the manifests: `kubectl apply` with full validation, as a dry run. And
`images:` of an overlay reaches every image.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from realcluster import install
from reprieve_testing.cluster.handle import OPERATOR_NAMESPACE, ClusterHandle
from reprieve_testing.manifests import EXAMPLES

pytestmark = pytest.mark.cluster

SECOND_SCHEDULER = install.MANIFESTS / "scheduler" / "second"
EXTENDER = install.MANIFESTS / "overlays" / "extender"
OVERLAYS = [
    pytest.param(path, id=path.name)
    for path in (
        install.BASE,
        install.LOCAL,
        install.DEMO,
        install.DEMO_DEPLOYMENTS,
        EXTENDER,
        SECOND_SCHEDULER,
    )
]
PORT = 23456
NOT_LOCAL = {"Deployment", "PodDisruptionBudget", "Service"}


def objects(text: str) -> Iterator[Any]:
    return (found for found in yaml.safe_load_all(text) if found is not None)


def identities(text: str) -> set[tuple[str, str]]:
    return {(found["kind"], found["metadata"]["name"]) for found in objects(text)}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_server_accepts_every_manifest(cluster: ClusterHandle, overlay: object) -> None:
    # On a dry run the Namespace is not really made, and everything else in it would be "not found".
    cluster.kubectl.read("apply", "-f", install.NAMESPACE_FILE)
    # kubectl warns about an object that other tests created without it.
    cluster.client.delete("configmap", "reprieve-policy", namespace=OPERATOR_NAMESPACE)
    done = cluster.kubectl.run("apply", "--dry-run=server", "-k", overlay)
    assert done.status == 0, done.output
    # Other tests of this cluster create objects without `kubectl apply`, which kubectl warns of.
    warnings = [line for line in done.output.splitlines() if "Warning" in line]
    assert [line for line in warnings if "last-applied-configuration" not in line] == []


def test_the_components_for_seeing_build_and_are_accepted(
    cluster: ClusterHandle, tmp_path: Path
) -> None:
    def relative(folder: str) -> str:
        return os.path.relpath(install.MANIFESTS / folder, tmp_path)

    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [relative("base")],
        "components": [relative(f"components/{name}") for name in ("monitoring", "ui")],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    built = list(objects(cluster.kubectl.read("kustomize", tmp_path)))
    added = {(each["kind"], each["metadata"]["name"]) for each in built} - identities(
        cluster.kubectl.read("kustomize", install.BASE)
    )
    foreign = {("PodMonitor", "reprieve"), ("PrometheusRule", "reprieve")}
    assert added == foreign | {
        ("ServiceAccount", "reprieve-metrics"),
        ("Secret", "reprieve-metrics-token"),
        ("ClusterRoleBinding", "reprieve-metrics"),
        ("ClusterRole", "reprieve-ui"),
        ("ClusterRoleBinding", "reprieve-ui"),
        ("ConfigMap", "reprieve-dashboard"),
    }
    (operator,) = [
        each["spec"]["template"]["spec"]["containers"][0]
        for each in built
        if (each["kind"], each["metadata"]["name"]) == ("Deployment", "reprieve-operator")
    ]
    assert operator["env"] == [{"name": "REPRIEVE_UI", "value": "true"}]
    # Their kinds are those of the Prometheus Operator, which is not installed here.
    ours = [each for each in built if (each["kind"], each["metadata"]["name"]) in added - foreign]
    cluster.kubectl.read("apply", "-f", install.NAMESPACE_FILE)
    words = ("apply", "--dry-run=server", "-f", "-")
    done = cluster.kubectl.run(*words, stdin=yaml.safe_dump_all(ours))
    assert done.status == 0, done.output


@pytest.mark.parametrize(
    ("overlay", "more"),
    [(install.LOCAL, set()), (install.DEMO, {("ConfigMap", "reprieve-policy")})],
)
def test_an_installation_for_local_programs_has_everything_but_pods(
    cluster: ClusterHandle, overlay: Any, more: set[tuple[str, str]]
) -> None:
    base = identities(cluster.kubectl.read("kustomize", install.BASE))
    local = identities(install.render(cluster.kubectl, overlay, PORT))
    assert local == {identity for identity in base if identity[0] not in NOT_LOCAL} | more


def test_an_image_of_your_own_is_the_agents_too(cluster: ClusterHandle) -> None:
    folder = cluster.cluster.home / "own-image"
    folder.mkdir(exist_ok=True)
    base = os.path.relpath(install.BASE, folder)
    image = {"name": "reprieve", "newName": "registry.example.com/reprieve", "newTag": "2.0.0"}
    kustomization = {"resources": [base], "images": [image]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    deployments = [
        found["spec"]["template"]["spec"]["containers"][0]
        for found in objects(cluster.kubectl.read("kustomize", folder))
        if found["kind"] == "Deployment"
    ]
    agents = [
        variable["value"]
        for container in deployments
        for variable in container.get("env", [])
        if variable["name"] == "REPRIEVE_AGENT_IMAGE"
    ]
    images = [container["image"] for container in deployments]
    assert [*images, *agents] == ["registry.example.com/reprieve:2.0.0"] * 3


def test_every_webhook_is_called_on_the_configured_port(cluster: ClusterHandle) -> None:
    def called(text: str) -> dict[tuple[str, str], Any]:
        return {
            (found["kind"], webhook["name"]): webhook["clientConfig"]
            for found in objects(text)
            for webhook in found.get("webhooks", [])
        }

    base = called(cluster.kubectl.read("kustomize", install.BASE))
    wanted = {
        one: {"url": f"https://127.0.0.1:{PORT}{config['service']['path']}"}
        for one, config in base.items()
    }
    assert called(install.render(cluster.kubectl, install.DEMO, PORT)) == wanted


def test_the_examples_are_accepted(cluster: ClusterHandle) -> None:
    folders = (file.parent for file in sorted(EXAMPLES.rglob("kustomization.yaml")))
    files = (EXAMPLES / "admitted", EXAMPLES / "annotation" / "own-pod-only.yaml")
    for words in (*(("-k", folder) for folder in folders), *(("-f", file) for file in files)):
        done = cluster.kubectl.run("apply", "--dry-run=server", *words)
        assert done.status == 0, done.output
        assert "Warning" not in done.output
