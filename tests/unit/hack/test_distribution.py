"""The chart and `install.yaml`: names of images, the archive, and manifests that a value misses."""

import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from distribution import archive, image, install_yaml, templates
from distribution.image import Image
from distribution.templates import CHART, ManifestError, Replacement, Source

DIGEST = f"sha256:{'a' * 64}"
NAMES = {
    "reprieve": Image(name="reprieve"),
    "reprieve:0.1.0": Image(name="reprieve", tag="0.1.0"),
    "localhost:5000/reprieve": Image(name="localhost:5000/reprieve"),
    "localhost:5000/team/reprieve:2": Image(name="localhost:5000/team/reprieve", tag="2"),
    f"r.example.com/x@{DIGEST}": Image(name="r.example.com/x", digest=DIGEST),
    f"r.example.com/x:1@{DIGEST}": Image(name="r.example.com/x", tag="1", digest=DIGEST),
}


@pytest.mark.parametrize("text", NAMES)
def test_the_name_of_an_image_has_up_to_three_parts(text: str) -> None:
    assert image.parse(text) == NAMES[text]


@pytest.mark.parametrize("text", ["", "a b", "x:", "x@sha256:12", ":1", "x@y"])
def test_what_is_no_name_of_an_image_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the name of an image"):
        image.parse(text)


def files(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {
            member.name: extracted.read()
            for member in tar.getmembers()
            if (extracted := tar.extractfile(member))
        }


def values_in(path: Path) -> Any:
    return yaml.safe_load(files(path)["reprieve/values.yaml"])


def test_the_archive_has_every_file_of_the_chart(tmp_path: Path) -> None:
    path = archive.write(tmp_path, None)
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    assert path.name == f"reprieve-{version}.tgz"
    expected = {
        f"reprieve/{file.relative_to(CHART)}": file.read_bytes()
        for file in CHART.rglob("*")
        if file.is_file()
    }
    assert files(path) == expected


def test_the_same_chart_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    first = archive.write(tmp_path, None).read_bytes()
    assert archive.write(tmp_path, None).read_bytes() == first


def test_the_archive_names_the_image_that_is_given(tmp_path: Path) -> None:
    named = Image(name="r.example.com/reprieve", tag="1", digest=DIGEST)
    given = {"repository": "r.example.com/reprieve", "tag": "1", "digest": DIGEST}
    assert given.items() <= values_in(archive.write(tmp_path, named))["image"].items()
    unnamed = {"repository": "reprieve", "tag": "", "digest": ""}
    assert unnamed.items() <= values_in(archive.write(tmp_path, None))["image"].items()


KUBECTL = """#!/bin/sh
echo "kind: $1"
cat "$2/kustomization.yaml"
"""


@pytest.fixture
def own_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a kubectl, on which nothing was built."""
    program = tmp_path / "tools" / "kubectl"
    program.parent.mkdir()
    program.write_text(KUBECTL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.usefixtures("own_kubectl")
def test_install_yaml_is_the_base_with_the_given_image(tmp_path: Path) -> None:
    named = Image(name="r.example.com/reprieve", digest=DIGEST)
    written = yaml.safe_load(install_yaml.write(tmp_path, named).read_text(encoding="utf-8"))
    assert written["kind"] == "kustomize"
    assert written["images"] == [
        {"name": "reprieve", "newName": "r.example.com/reprieve", "digest": DIGEST}
    ]
    (base,) = written["resources"]
    assert Path(base).name == "base"


@pytest.mark.usefixtures("own_kubectl")
def test_without_an_image_install_yaml_is_the_base(tmp_path: Path) -> None:
    written = yaml.safe_load(install_yaml.write(tmp_path, None).read_text(encoding="utf-8"))
    assert set(written) == {"kind", "resources"}


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own folder of manifests with one file of which a template is written."""
    monkeypatch.setattr(templates, "MANIFESTS", tmp_path)
    replicas = Replacement(pattern=r"  replicas: \d+\n", template="  replicas: {{ .Values.n }}\n")
    source = Source(
        file="base/x.yaml", template="x.yaml", replacements=(replicas,), condition=".Values.on"
    )
    monkeypatch.setattr(templates, "SOURCES", (source,))
    (tmp_path / "base").mkdir()
    return tmp_path / "base" / "x.yaml"


def test_a_template_is_the_manifest_with_values_labels_and_condition(manifest: Path) -> None:
    manifest.write_text("# Two.\nmetadata:\n  name: x\nspec:\n  replicas: 2\n")
    (header, *lines) = templates.render()["x.yaml"].splitlines()
    assert "manifests/base/x.yaml" in header
    assert lines == [
        "{{- if .Values.on }}",
        "# Two.",
        "metadata:",
        "  labels:",
        "    app.kubernetes.io/part-of: reprieve",
        "    app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}",
        "  name: x",
        "spec:",
        "  replicas: {{ .Values.n }}",
        "{{- end }}",
    ]


def test_a_manifest_without_the_text_of_a_value_is_an_error(manifest: Path) -> None:
    manifest.write_text("metadata:\n  name: x\n")
    with pytest.raises(ManifestError, match=r"base/x\.yaml: has 0 times the text"):
        templates.render()


def test_a_manifest_with_an_action_of_a_template_is_an_error(manifest: Path) -> None:
    manifest.write_text("metadata:\n  name: '{{ x }}'\n  replicas: 2\n")
    with pytest.raises(ManifestError, match="begins an action of a template"):
        templates.render()
