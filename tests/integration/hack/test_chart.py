"""Helm renders the chart as the fast tests do, and refuses values that the schema does not have.

Slow where Helm is not built yet: `make upstream` builds it.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from distribution import archive, install_yaml
from distribution.image import Image
from distribution.templates import CHART, MANIFESTS
from realcluster.binaries import build
from realcluster.progress import Progress
from reprieve_testing import chart
from reprieve_webhooks.settings import Settings

pytestmark = pytest.mark.slow

Json = Any
ON: Json = {"enabled": True}
INSTALLED: dict[str, tuple[Json, str, tuple[str, ...]]] = {
    "base": ({}, "base", ()),
    "extender": ({"extender": ON}, "overlays/extender", ()),
    "cel": ({"cel": ON}, "overlays/cel", ()),
    "monitoring": ({"monitoring": ON}, "base", ("monitoring",)),
    "ui": ({"ui": ON}, "base", ("ui",)),
    "class-priorities": ({"classPriorities": ON}, "base", ("class-priorities",)),
    "all that go together": (
        {"cel": ON, "extender": ON, "monitoring": ON, "ui": ON},
        "overlays/cel",
        ("extender", "monitoring", "ui"),
    ),
}
"""Values, and what does the same: a folder of `manifests` with components."""
POD = {
    "replicas": 3,
    "args": ["--log-level=debug"],
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"role": "infra"},
    "tolerations": [{"key": "infra", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "resources": {"limits": {"cpu": "1"}},
}
VALUES: dict[str, Json] = {
    "the defaults": {},
    "everything changed": {
        "image": {"repository": "r.example.com:5000/x", "tag": "2", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "policy": {
            "ceiling": "1h",
            "maxVictims": "5",
            "classPriorities": "off",
            "schedulers": "system:kube-scheduler,system:serviceaccount:volcano-system:volcano",
        },
        "webhooks": POD,
        "operator": POD,
        "failurePolicy": "Fail",
        "extender": ON,
        "classPriorities": ON,
        "monitoring": ON,
        "ui": ON,
        "networkPolicies": {"enabled": False},
        "createNamespace": True,
    },
    "the API server's policies": {"cel": ON},
    "a policy without settings": {"policy": None},
    "a digest, and metrics for another namespace": {
        "image": {"digest": f"sha256:{'0' * 64}"},
        "metrics": {"namespaceSelector": {"matchLabels": {"team": "sre"}}},
    },
}
REFUSED: dict[str, Json] = {
    "additional properties 'replica' not allowed": {"webhooks": {"replica": 3}},
    "additional properties 'ceilling' not allowed": {"policy": {"ceilling": "1h"}},
    "got number, want string": {"policy": {"maxVictims": 5}},
    "got boolean, want string": {"policy": {"classPriorities": False}},
    "/failurePolicy": {"failurePolicy": "Sometimes"},
    "/image/digest": {"image": {"digest": "latest"}},
}


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    return build.ensure(["helm", "kubectl"], Progress())


def run(*words: object) -> "subprocess.CompletedProcess[str]":
    command = [str(word) for word in words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def lookups(found: dict[tuple[str, str], Json]) -> set[bool]:
    """Return whether the programs find each object that they look up by its name."""
    names = Settings()
    present = {(*key, each["metadata"].get("namespace", "")) for key, each in found.items()}
    return {
        looked_up in present
        for looked_up in (
            ("Secret", names.secret_name, names.namespace),
            ("Service", names.service_name, names.namespace),
            ("ValidatingWebhookConfiguration", names.webhook_configuration, ""),
        )
    }


@pytest.mark.parametrize("field", ["namespace", "namePrefix", "nameSuffix"])
def test_an_overlay_that_renames_is_no_way_to_install(
    programs: dict[str, Path], tmp_path: Path, field: str
) -> None:
    before = objects(kustomize(programs, tmp_path / "base", "base"))
    assert lookups(before) == {True}
    # The webhooks find no certificates, so that they are never ready: docs/install.md says so.
    renamed = objects(kustomize(programs, tmp_path / "renamed", "base", **{field: "x"}))
    assert False in lookups(renamed)
    secrets = {
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for (kind, _), each in renamed.items()
        if kind == "Secret"
    }
    assert (Settings().namespace, Settings().secret_name) not in secrets
    page = (MANIFESTS.parent / "docs" / "install.md").read_text(encoding="utf-8")
    assert f"`{field}`" in page


def template(
    programs: dict[str, Path], values: Json, folder: Path, *words: str, of: Path = CHART
) -> "subprocess.CompletedProcess[str]":
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    namespace = words or ("--namespace", chart.NAMESPACE)
    return run(programs["helm"], "template", "reprieve", of, "-f", file, *namespace)


def objects(text: str) -> dict[tuple[str, str], Json]:
    loaded = (found for found in yaml.safe_load_all(text) if found is not None)
    return {(found["kind"], found["metadata"]["name"]): found for found in loaded}


@pytest.mark.parametrize("name", INSTALLED)
def test_the_chart_installs_what_kustomize_does_object_for_object(
    programs: dict[str, Path], tmp_path: Path, name: str
) -> None:
    values, folder, components = INSTALLED[name]
    rendered = template(programs, {"createNamespace": True} | values, tmp_path)
    assert rendered.returncode == 0, rendered.stderr
    kustomized = kustomize(programs, tmp_path, folder, *components)
    assert objects(rendered.stdout) == objects(kustomized)


def kustomize(
    programs: dict[str, Path], directory: Path, folder: str, *components: str, **more: Json
) -> str:
    """Return what an overlay of this folder of `manifests`, with components, installs."""
    root = directory / "manifests"
    shutil.copytree(MANIFESTS, root)
    overlay = root / "overlays" / "made"
    overlay.mkdir()
    kustomization = {
        "resources": [f"../../{folder}"],
        "components": [f"../../components/{name}" for name in components],
    }
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization | more))
    done = run(programs["kubectl"], "kustomize", overlay)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("component", ["extender", "ui"])
def test_a_component_goes_with_an_overlay_that_sets_arguments(
    programs: dict[str, Path], tmp_path: Path, component: str
) -> None:
    deployment, variable = {
        "extender": ("reprieve-webhooks", "REPRIEVE_EXTENDER"),
        "ui": ("reprieve-operator", "REPRIEVE_UI"),
    }[component]
    path = "/spec/template/spec/containers/0/args"
    patch = [{"op": "add", "path": path, "value": ["--log-level=debug"]}]
    changed = {"target": {"kind": "Deployment"}, "patch": yaml.safe_dump(patch)}
    found = objects(kustomize(programs, tmp_path, "base", component, patches=[changed]))
    (container,) = found["Deployment", deployment]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["--log-level=debug"]
    assert {"name": variable, "value": "true"} in container["env"]


@pytest.mark.parametrize("name", VALUES)
def test_helm_renders_what_the_fast_tests_compare(
    programs: dict[str, Path], tmp_path: Path, name: str
) -> None:
    rendered = template(programs, VALUES[name], tmp_path)
    assert rendered.returncode == 0, rendered.stderr
    expected = {
        (found["kind"], found["metadata"]["name"]): found for found in chart.render(VALUES[name])
    }
    assert objects(rendered.stdout) == expected


@pytest.mark.parametrize("message", REFUSED)
def test_a_value_that_has_no_effect_is_refused(
    programs: dict[str, Path], tmp_path: Path, message: str
) -> None:
    refused = template(programs, REFUSED[message], tmp_path)
    assert refused.returncode == 1
    assert message in refused.stderr


def test_another_namespace_is_refused(programs: dict[str, Path], tmp_path: Path) -> None:
    refused = template(programs, {}, tmp_path, "--namespace", "team")
    assert "the namespace must be reprieve-system" in refused.stderr


def test_helm_finds_no_fault_with_the_chart(programs: dict[str, Path]) -> None:
    done = run(programs["helm"], "lint", "--strict", "--namespace", chart.NAMESPACE, CHART)
    assert done.returncode == 0, done.stdout


def test_the_archive_and_install_yaml_name_the_given_image(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    image = Image(name="r.example.com/reprieve", tag="2")
    packed = archive.write(tmp_path, image)
    rendered = template(programs, {"createNamespace": True}, tmp_path, of=packed)
    written = install_yaml.write(tmp_path, image)
    text = written.read_text(encoding="utf-8")
    assert text.count("r.example.com/reprieve:2") == 3
    assert objects(text) == objects(rendered.stdout)
