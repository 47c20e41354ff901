"""Helm renders the chart as the fast tests do, and refuses values that the schema does not have.

Slow where Helm is not built yet: `make upstream` builds it.
"""

import json
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

pytestmark = pytest.mark.slow

Json = Any
INSTALLED: dict[str, tuple[Json, Path]] = {
    "base": ({"createNamespace": True}, MANIFESTS / "base"),
    "extender": (
        {"createNamespace": True, "extender": {"enabled": True}},
        MANIFESTS / "overlays" / "extender",
    ),
}
"""What `kubectl kustomize` installs, and the values with which the chart does the same."""
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
        "policy": {"ceiling": "1h", "maxVictims": "5", "classPriorities": "off"},
        "webhooks": POD,
        "operator": POD,
        "failurePolicy": "Fail",
        "extender": {"enabled": True},
        "classPriorities": {"enabled": True},
        "networkPolicies": {"enabled": False},
        "createNamespace": True,
    },
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
    values, folder = INSTALLED[name]
    rendered = template(programs, values, tmp_path)
    assert rendered.returncode == 0, rendered.stderr
    kustomized = run(programs["kubectl"], "kustomize", folder)
    assert objects(rendered.stdout) == objects(kustomized.stdout)


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
