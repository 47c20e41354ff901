"""The two Deployments: their rights on the node; probes, ports and budgets that fit the
programs.
"""

import tomllib
from dataclasses import fields
from typing import Any

import pytest

from reprieve_operator.settings import OperatorSettings
from reprieve_runtime.settings import ENVIRONMENT_PREFIX
from reprieve_testing import manifests
from reprieve_webhooks.settings import Settings

DEPLOYMENTS = [
    pytest.param(found, id=found["metadata"]["name"]) for found in manifests.of_kind("Deployment")
]
PORTS: dict[str, tuple[int, int]] = {
    "reprieve-webhooks": (Settings().listen_port, Settings().metrics_port),
    "reprieve-operator": (OperatorSettings().listen_port, OperatorSettings().metrics_port),
}
"""Of probes and of metrics."""
PROJECT = tomllib.loads((manifests.ROOT / "pyproject.toml").read_text())["project"]


def container_of(deployment: Any) -> Any:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return container


def test_both_programs_are_deployed() -> None:
    assert {found["metadata"]["name"] for found in manifests.of_kind("Deployment")} == set(PORTS)


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_the_package_installs_the_command(deployment: Any) -> None:
    (command,) = container_of(deployment)["command"]
    assert command == deployment["metadata"]["name"]
    assert command in PROJECT["scripts"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_the_image_is_this_version(deployment: Any) -> None:
    container = container_of(deployment)
    assert container["image"] == f"reprieve:{PROJECT['version']}"
    assert container["imagePullPolicy"] == "IfNotPresent"


def test_both_programs_listen_on_the_address_of_their_pod_also_where_it_is_of_ipv6() -> None:
    """`integration/runtime/test_handshakes.py` shows where a port without an address listens."""
    assert OperatorSettings().listen_address == Settings().listen_address == ""


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_every_variable_is_a_setting_of_the_program(deployment: Any) -> None:
    settings = {"reprieve-webhooks": Settings, "reprieve-operator": OperatorSettings}
    known = {
        ENVIRONMENT_PREFIX + each.name.upper()
        for each in fields(settings[deployment["metadata"]["name"]])
    }
    assert {each["name"] for each in container_of(deployment).get("env", [])} <= known


def test_agents_run_the_image_of_the_webhooks() -> None:
    container = container_of(manifests.named("Deployment", "reprieve-webhooks"))
    (image,) = [
        each["value"] for each in container["env"] if each["name"] == "REPRIEVE_AGENT_IMAGE"
    ]
    assert image == container["image"] == Settings().agent_image


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_each_deployment_has_a_restricted_security_context(deployment: Any) -> None:
    pod, container = deployment["spec"]["template"]["spec"], container_of(deployment)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "volumes"} & set(pod)


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_each_deployment_has_its_own_service_account(deployment: Any) -> None:
    name = deployment["metadata"]["name"]
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == name
    assert manifests.named("ServiceAccount", name)["automountServiceAccountToken"] is False


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_the_probes_use_the_paths_that_the_program_serves(deployment: Any) -> None:
    container = container_of(deployment)
    port, metrics = container["ports"]
    numbers = (port["containerPort"], metrics["containerPort"])
    assert numbers == PORTS[deployment["metadata"]["name"]]
    for probe, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")):
        request = container[probe]["httpGet"]
        assert (request["path"], request["port"]) == (path, port["name"])
        assert (request.get("scheme") == "HTTPS") == (port["name"] == "https")


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_only_monitoring_reaches_the_metrics_and_nobody_the_operators_probes(
    deployment: Any,
) -> None:
    name = deployment["metadata"]["name"]
    policy = manifests.named("NetworkPolicy", name)["spec"]
    assert policy["podSelector"] == deployment["spec"]["selector"]
    assert policy["policyTypes"] == ["Ingress"]
    admitted = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["ingress"]}
    monitoring = [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}]
    everybody = {"https": None} if name == "reprieve-webhooks" else {}
    assert admitted == {"metrics": monitoring, **everybody}
    assert admitted.keys() <= {port["name"] for port in container_of(deployment)["ports"]}


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_each_container_has_a_memory_limit_and_requests(deployment: Any) -> None:
    resources = container_of(deployment)["resources"]
    assert set(resources["requests"]) == {"cpu", "memory"}
    assert "memory" in resources["limits"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_a_rollout_or_a_drain_leaves_one_replica_running(deployment: Any) -> None:
    spec = deployment["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    budget = manifests.named("PodDisruptionBudget", deployment["metadata"]["name"])["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == spec["selector"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_selectors_find_the_pods(deployment: Any) -> None:
    template = deployment["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (spread,) = template["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"].items() <= labels.items()


def test_webhooks_end_only_after_they_have_drained() -> None:
    deployment = manifests.named("Deployment", "reprieve-webhooks")
    pause = container_of(deployment)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert (
        pause + Settings().drain_seconds
        < deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    )


def test_the_namespace_admits_restricted_pods_only() -> None:
    labels = manifests.named("Namespace", Settings().namespace)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_everything_namespaced_is_in_one_namespace() -> None:
    found = {
        item["metadata"]["namespace"]
        for item in manifests.base()
        if "namespace" in item["metadata"]
    }
    assert found == {Settings().namespace} == {OperatorSettings().namespace}
