"""The stanza for kube-scheduler, the second scheduler and the component match the server.

They also match each other.
"""

import re
from typing import Any
from urllib.parse import urlsplit

import pytest

from realcluster.binaries import pins
from reprieve_policy.kube.values import quantity
from reprieve_testing import manifests
from reprieve_webhooks.extender import service
from reprieve_webhooks.extender.route import PATH
from reprieve_webhooks.settings import Settings

SETTINGS = Settings()
SCHEDULER = manifests.MANIFESTS / "scheduler"
SECOND = SCHEDULER / "second"
COMPONENT = manifests.MANIFESTS / "components" / "extender"
SERVICE = f"{SETTINGS.service_name}.{SETTINGS.namespace}.svc"
NAME = "reprieve-scheduler"
MIB = 2**20
(STANZA,) = manifests.read(SCHEDULER / "stanza.yaml")
(CONFIG,) = manifests.read(SECOND / "config.yaml")
(DEPLOYMENT,) = manifests.read(SECOND / "deployment.yaml")
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
CONFIGURATIONS = [pytest.param(STANZA, id="stanza"), pytest.param(CONFIG, id="second")]


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_the_scheduler_calls_the_path_that_the_server_serves(config: Any) -> None:
    (extender,) = config["extenders"]
    url = urlsplit(f"{extender['urlPrefix']}/{extender['preemptVerb']}")
    assert (url.scheme, url.hostname, url.port or 443, url.path) == ("https", SERVICE, 443, PATH)
    assert extender["enableHTTPS"] is True
    assert extender["tlsConfig"]["serverName"] == SERVICE
    assert "insecure" not in extender["tlsConfig"]


@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_an_outage_is_ignorable_and_the_timeout_is_longer_than_the_servers(
    config: Any,
) -> None:
    (extender,) = config["extenders"]
    assert extender["ignorable"] is True
    assert SETTINGS.extender_timeout_seconds < seconds(extender["httpTimeout"])


@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_the_extender_is_asked_about_preemption_only(config: Any) -> None:
    (extender,) = config["extenders"]
    assert not {"filterVerb", "prioritizeVerb", "bindVerb", "managedResources"} & set(extender)


@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_all_pods_that_wait_back_off_equally_long_and_so_are_tried_by_priority(config: Any) -> None:
    """kube-scheduler refuses an initial back-off below 1 s, and a maximum below the initial one."""
    assert config.get("podInitialBackoffSeconds", 1) == config["podMaxBackoffSeconds"] == 1


def test_the_two_configurations_differ_in_profile_lease_and_place_of_the_ca_only() -> None:
    (mine,), (second,) = STANZA["extenders"], CONFIG["extenders"]
    assert mine | {"tlsConfig": None} == second | {"tlsConfig": None}
    assert set(CONFIG) - set(STANZA) == {"leaderElection"}


def test_the_second_scheduler_reads_its_own_configuration_and_the_certificate_of_the_ca_alone() -> (
    None
):
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    assert f"--config={mounts['config']}/config.yaml" in CONTAINER["args"]
    (kustomization,) = manifests.read(SECOND / "kustomization.yaml")
    (generated,) = kustomization["configMapGenerator"]
    assert volumes["config"]["configMap"]["name"] == generated["name"]
    assert generated["files"] == ["config.yaml"]
    secret = volumes["ca"]["secret"]
    assert secret["secretName"] == SETTINGS.secret_name
    assert secret["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
    assert CONFIG["extenders"][0]["tlsConfig"]["caFile"] == f"{mounts['ca']}/ca.crt"
    # kustomize confuses a Lease's name in a Role with a ConfigMap's generated name if both are the
    # same.
    assert generated["name"] != CONFIG["leaderElection"]["resourceName"]


def test_the_second_schedulers_pod_is_restricted_and_has_its_own_account() -> None:
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert POD["serviceAccountName"] == NAME
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(POD)


def test_the_second_scheduler_has_the_rights_of_a_scheduler_and_its_own_lease() -> None:
    found = {
        (item["kind"], item["metadata"]["name"]): item
        for item in manifests.read(SECOND / "rbac.yaml")
    }
    bound = {
        item["roleRef"]["name"] for (kind, _), item in found.items() if kind == "ClusterRoleBinding"
    }
    assert bound == {"system:kube-scheduler", "system:volume-scheduler"}
    rules = found["Role", NAME]["rules"]
    lease = CONFIG["leaderElection"]
    assert [(rule["resources"], rule.get("resourceNames"), rule["verbs"]) for rule in rules] == [
        (["leases"], None, ["create"]),
        (["leases"], [lease["resourceName"]], ["get", "update"]),
    ]
    assert lease["resourceNamespace"] == SETTINGS.namespace
    accounts = {
        (s["name"], s["namespace"]) for item in found.values() for s in item.get("subjects", [])
    }
    assert accounts == {(NAME, SETTINGS.namespace)}


def test_the_component_enables_the_extender_and_raises_its_memory() -> None:
    (patch,) = manifests.read(COMPONENT / "webhooks.yaml")
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    base = manifests.named("Deployment", patch["metadata"]["name"])
    (based,) = base["spec"]["template"]["spec"]["containers"]
    assert container["name"] == based["name"]
    # A variable, not a flag: `args` of an overlay would replace that.
    assert container["env"] == [{"name": "REPRIEVE_EXTENDER", "value": "true"}]
    assert "args" not in container
    assert "args" not in based
    assert SETTINGS.extender is False


def test_the_components_memory_fits_the_measured_pods_and_all_concurrent_calls() -> None:
    (patch,) = manifests.read(COMPONENT / "webhooks.yaml")
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    page = " ".join((manifests.ROOT / "docs" / "scheduler.md").read_text(encoding="utf-8").split())
    (pods, calls) = (
        int(found) for found in re.findall(r"(?:\| 150,000 \| \d+ MiB \||come to) (\d+) MiB", page)
    )
    assert (
        calls * MIB
        == (service._MAX_WAITING_CALLS + service._MAX_CONCURRENT_CALLS)
        * SETTINGS.max_extender_bytes
    )
    assert f"memory limit of {container['resources']['limits']['memory']}," in page
    assert f"request of {container['resources']['requests']['memory']} " in page
    # A fifth stays free: for the copy of a completely received call, and for everything else.
    limit = quantity.parse(container["resources"]["limits"]["memory"], "memory")
    assert isinstance(limit, int)
    assert (pods + calls) * MIB * quantity.NANOS < limit * 0.8


def test_the_component_grants_what_the_watches_need_and_no_more() -> None:
    role, binding = manifests.read(COMPONENT / "rbac.yaml")
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    watched = {
        ("", "pods"),
        ("", "nodes"),
        ("policy", "poddisruptionbudgets"),
        ("scheduling.k8s.io", "podgroups"),
    }
    # Jobs are the base's already.
    assert granted == {(*resource, verb) for resource in watched for verb in ("list", "watch")}
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    assert (subject["name"], subject["namespace"]) == (SETTINGS.service_name, SETTINGS.namespace)


def test_the_overlay_is_the_base_and_the_component() -> None:
    (overlay,) = manifests.read(
        manifests.MANIFESTS / "overlays" / "extender" / "kustomization.yaml"
    )
    assert overlay["resources"] == ["../../base"]
    assert overlay["components"] == ["../../components/extender"]


def test_the_schedulers_image_is_the_version_that_is_tested() -> None:
    assert CONTAINER["image"] == f"kube-scheduler:{pins.version(pins.BINARIES['kube-scheduler'])}"
