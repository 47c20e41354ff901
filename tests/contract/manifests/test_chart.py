"""The chart installs what the base does, and each of its values has its effect.

Rendered without Helm, by `reprieve_testing.chart`; `integration/hack/test_chart.py` uses Helm.
"""

import copy
import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from distribution import templates
from distribution.templates import CHART
from reprieve_policy.config import settings
from reprieve_policy.config.settings import FIELDS, PolicySettings
from reprieve_testing import chart, manifests

Json = Any
DIGEST = f"sha256:{'0' * 64}"
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFINITIONS = SCHEMA["definitions"]


def by_name(objects: list[Json]) -> dict[tuple[str, str], Json]:
    return {(found["kind"], found["metadata"]["name"]): found for found in objects}


def base() -> dict[tuple[str, str], Json]:
    """Return the objects of the base with the labels that its kustomization adds."""
    (kustomization,) = manifests.read(manifests.BASE / "kustomization.yaml")
    (added,) = kustomization["labels"]
    objects = copy.deepcopy(manifests.base())
    for found in objects:
        found["metadata"].setdefault("labels", {}).update(added["pairs"])
        if found["kind"] == "Deployment":
            found["spec"]["template"]["metadata"]["labels"].update(added["pairs"])
    return by_name(objects)


def deployments(**given: Any) -> list[Json]:
    """Return the pod specs of the operator and of the webhooks."""
    found = by_name(chart.render(given))
    names = ("reprieve-operator", "reprieve-webhooks")
    return [found["Deployment", name]["spec"]["template"]["spec"] for name in names]


def containers(**given: Any) -> list[Json]:
    return [pod["containers"][0] for pod in deployments(**given)]


def images(**image: str) -> set[str]:
    """Return the images that pods and agents run."""
    operator, webhooks = containers(image=image)
    agents = [each["value"] for each in webhooks["env"] if each["name"] == "REPRIEVE_AGENT_IMAGE"]
    return {operator["image"], webhooks["image"], *agents}


def test_the_templates_are_those_of_the_manifests() -> None:
    for name, text in templates.render().items():
        written = (CHART / "templates" / name).read_text(encoding="utf-8")
        assert written == text, f"{name} is out of date: run `make chart-templates`"


def test_every_file_of_the_base_has_a_template() -> None:
    assert set(templates.base_files()) <= {source.file for source in templates.SOURCES}


def test_with_the_defaults_everything_but_the_namespace_is_installed() -> None:
    expected = base()
    del expected["Namespace", "reprieve-system"]
    assert by_name(chart.render()) == expected


def test_the_namespace_is_installed_where_helm_does_not_create_it() -> None:
    assert by_name(chart.render({"createNamespace": True})) == base()


def test_another_namespace_is_refused() -> None:
    with pytest.raises(chart.FailError, match="the namespace must be reprieve-system"):
        chart.render(namespace="team")


def test_agents_and_programs_have_one_image() -> None:
    version = chart.chart()["appVersion"]
    assert images() == {f"reprieve:{version}"}
    assert images(repository="r.example.com/x") == {f"r.example.com/x:{version}"}
    assert images(repository="r.example.com/x", tag="2") == {"r.example.com/x:2"}
    assert images(repository="x", tag="2", digest=DIGEST) == {f"x@{DIGEST}"}


def test_without_a_policy_the_chart_has_no_configmap() -> None:
    assert not [found for found in chart.render() if found["kind"] == "ConfigMap"]


def test_the_policy_is_the_configmap_that_the_programs_read() -> None:
    found = by_name(chart.render({"policy": {"ceiling": "1h", "maxVictims": "5"}}))
    config_map = found["ConfigMap", "reprieve-policy"]
    assert config_map["metadata"]["namespace"] == "reprieve-system"
    assert settings.parse(config_map["data"]) == PolicySettings(ceiling_seconds=3600, max_victims=5)


@pytest.mark.parametrize("program", ["operator", "webhooks"])
def test_the_pods_of_each_program_have_its_values(program: str) -> None:
    given = {
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"role": "infra"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
    }
    more = {"replicas": 3, "args": ["--log-level=debug"], "resources": {"limits": {"cpu": "1"}}}
    found = by_name(chart.render({program: given | more}))
    deployment = found["Deployment", f"reprieve-{program}"]["spec"]
    pod = deployment["template"]["spec"]
    assert given.items() <= pod.items()
    assert deployment["replicas"] == 3
    assert pod["containers"][0]["args"] == ["--log-level=debug"]
    assert pod["containers"][0]["resources"]["limits"]["cpu"] == "1"
    (other,) = {"operator", "webhooks"} - {program}
    assert found["Deployment", f"reprieve-{other}"] == base()["Deployment", f"reprieve-{other}"]


def test_both_programs_are_pulled_as_the_values_say() -> None:
    pods = deployments(imagePullSecrets=[{"name": "pull"}], image={"pullPolicy": "Always"})
    assert [pod["imagePullSecrets"] for pod in pods] == [[{"name": "pull"}]] * 2
    assert [pod["containers"][0]["imagePullPolicy"] for pod in pods] == ["Always"] * 2


def policies(objects: list[Json]) -> Iterator[tuple[str, str]]:
    for found in objects:
        for webhook in found.get("webhooks", ()):
            yield webhook["name"], webhook["failurePolicy"]


def test_the_failure_policy_is_that_of_all_webhooks_that_ignore_by_default() -> None:
    by_default, changed = (
        policies(chart.render()),
        policies(chart.render({"failurePolicy": "Fail"})),
    )
    assert {policy for _, policy in changed} == {"Fail"}
    assert {name for name, policy in by_default if policy == "Fail"} == {
        "claims.reprieve.dev",
        "template-claims.reprieve.dev",
    }


def test_the_webhook_reviews_the_deletions_of_the_schedulers_that_the_policy_names() -> None:
    """Without this, the victims of another scheduler would be deleted without notice."""
    user = "system:serviceaccount:volcano-system:volcano-scheduler"
    text = f"system:kube-scheduler ,{user}"
    objects = chart.render({"policy": {"schedulers": text}})
    webhooks = by_name(objects)["ValidatingWebhookConfiguration", "reprieve-webhooks"]["webhooks"]
    (found,) = [one for one in webhooks if one["name"] == "preemptions.reprieve.dev"]
    assert found["matchConditions"][0] == {
        "name": "is-by-a-scheduler",
        "expression": f"request.userInfo.username in ['system:kube-scheduler', '{user}']",
    }
    assert FIELDS["schedulers"].parse(text, "") == {"system:kube-scheduler", user}


def test_an_empty_policy_is_that_of_the_defaults() -> None:
    """`policy:` in a file of values, with all settings below it commented out."""
    assert chart.render({"policy": None}) == chart.render()


def test_the_api_servers_policies_do_not_fail_closed() -> None:
    with pytest.raises(chart.FailError, match="exclude each other"):
        chart.render({"failurePolicy": "Fail", "cel": {"enabled": True}})


def test_the_extender_is_installed_with_its_rights_and_memory() -> None:
    found = by_name(
        chart.render({"extender": {"enabled": True}, "webhooks": {"args": ["--log-level=debug"]}})
    )
    container = found["Deployment", "reprieve-webhooks"]["spec"]["template"]["spec"]["containers"][
        0
    ]
    (patch,) = manifests.read(manifests.MANIFESTS / "components" / "extender" / "webhooks.yaml")
    (patched,) = patch["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["--log-level=debug"]
    assert container["env"][: len(patched["env"])] == patched["env"]
    assert container["resources"]["limits"] == patched["resources"]["limits"]
    assert patched["resources"]["requests"].items() <= container["resources"]["requests"].items()
    assert ("ClusterRoleBinding", "reprieve-extender") in found


def test_the_api_server_evaluates_the_rules_that_the_overlay_leaves_to_it() -> None:
    found, before = by_name(chart.render({"cel": {"enabled": True}})), by_name(chart.render())
    overlay = manifests.MANIFESTS / "overlays" / "cel"
    policies = by_name(manifests.read(overlay / "policies.yaml"))
    changed = {key for key in before if found[key] != before[key]}
    configurations = {
        (f"{kind}WebhookConfiguration", "reprieve-webhooks") for kind in ("Mutating", "Validating")
    }
    assert {key: found[key] for key in found.keys() - before.keys()} == policies
    assert changed == configurations
    for kind in ("Mutating", "Validating"):
        key = (f"{kind}WebhookConfiguration", "reprieve-webhooks")
        expected = copy.deepcopy(before[key])
        for operation in manifests.read(overlay / f"{kind.lower()}-webhooks.yaml")[0]:
            _apply(expected["webhooks"], operation)
        assert found[key] == expected


def _apply(webhooks: list[Json], operation: Json) -> None:
    """Apply one operation of the overlay's JSON patches."""
    _, _, index, *path = operation["path"].split("/")
    webhook, value = webhooks[int(index)], operation["value"]
    if operation["op"] == "test":
        assert webhook[path[0]] == value
    elif path == ["matchConditions"]:
        webhook["matchConditions"] = value
    else:
        assert path == ["matchConditions", "-"]
        webhook["matchConditions"].append(value)


def test_own_policies_of_the_api_server_are_yours_to_apply() -> None:
    own = {"cel": {"enabled": True, "ownPolicies": True}}
    found, before = by_name(chart.render(own | {"policy": {"ceiling": "1h"}})), chart.render()
    assert set(found) == {*by_name(before), ("ConfigMap", "reprieve-policy")}
    with pytest.raises(chart.FailError, match=r"set cel\.ownPolicies"):
        chart.render({"cel": {"enabled": True}, "policy": {"ceiling": "1h"}})
    with pytest.raises(chart.FailError, match="exclude each other"):
        chart.render(own | {"classPriorities": {"enabled": True}})


def test_the_webhooks_are_not_required_where_none_run() -> None:
    with pytest.raises(chart.FailError, match="would refuse every pod"):
        chart.render({"failurePolicy": "Fail", "webhooks": {"replicas": 0}})


def test_the_monitoring_is_that_of_its_component() -> None:
    found, before = by_name(chart.render({"monitoring": {"enabled": True}})), chart.render()
    folder = manifests.MANIFESTS / "components" / "monitoring"
    names = ("account.yaml", "podmonitor.yaml", "alerts.yaml")
    expected = by_name([each for name in names for each in manifests.read(folder / name)])
    added = {key: found[key] for key in found.keys() - by_name(before).keys()}
    dashboard = added.pop(("ConfigMap", "reprieve-dashboard"))
    assert added == expected
    text = (folder / "dashboard.json").read_text(encoding="utf-8")
    assert dashboard["data"] == {"reprieve.json": text}
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_the_page_is_turned_on_with_its_right() -> None:
    found = by_name(chart.render({"ui": {"enabled": True}, "operator": {"args": ["--x=1"]}}))
    assert found["ClusterRoleBinding", "reprieve-ui"]["subjects"][0]["name"] == "reprieve-operator"
    (operator,) = found["Deployment", "reprieve-operator"]["spec"]["template"]["spec"]["containers"]
    assert operator["env"] == [{"name": "REPRIEVE_UI", "value": "true"}]
    assert operator["args"] == ["--x=1"]


def test_what_a_value_turns_on_or_off_is_all_that_changes() -> None:
    default = set(by_name(chart.render()))
    classes = set(by_name(chart.render({"classPriorities": {"enabled": True}})))
    assert {kind for kind, _ in classes - default} == {"PriorityClass"}
    open_ports = set(by_name(chart.render({"networkPolicies": {"enabled": False}})))
    assert {kind for kind, _ in default - open_ports} == {"NetworkPolicy"}


def test_the_metrics_are_for_the_namespaces_of_the_value() -> None:
    selector = {"matchLabels": {"team": "sre"}}
    found = chart.render({"metrics": {"namespaceSelector": selector}})
    admitted = [
        source["namespaceSelector"]
        for policy in found
        if policy["kind"] == "NetworkPolicy"
        for rule in policy["spec"]["ingress"]
        for source in rule.get("from", ())
    ]
    assert admitted == [selector] * 2


def test_the_chart_has_the_version_of_the_package() -> None:
    project = tomllib.loads((manifests.ROOT / "pyproject.toml").read_text())["project"]
    found = chart.chart()
    assert (found["version"], found["appVersion"]) == (project["version"], project["version"])


def undescribed(values: Any, schema: Json, path: str = "") -> Iterator[str]:
    """Yield the paths of values that the schema does not name."""
    schema = DEFINITIONS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if not isinstance(values, dict) or "properties" not in schema:
        return
    if schema["additionalProperties"] is not False:
        yield f"{path} accepts unknown keys"
    for key, value in values.items():
        if key in schema["properties"]:
            yield from undescribed(value, schema["properties"][key], f"{path}.{key}")
        else:
            yield f"{path}.{key}"


def test_the_schema_describes_every_value_and_refuses_others() -> None:
    assert list(undescribed(chart.values(), SCHEMA)) == []


def test_the_schema_has_every_setting_of_the_policy_as_a_text() -> None:
    policy = SCHEMA["properties"]["policy"]
    assert set(policy["properties"]) == set(FIELDS)
    assert {row["type"] for row in policy["properties"].values()} == {"string"}
    assert policy["additionalProperties"] is False
