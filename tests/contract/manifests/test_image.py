"""The Dockerfile, which no test builds, agrees with the installed package and the pods that run
it.
"""

import re
import tomllib

from reprieve_testing import manifests

TEXT = (manifests.ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((manifests.ROOT / "pyproject.toml").read_text())
COPIED = {
    word for line in re.findall(r"^COPY ([^-].*) \S+$", TEXT, re.MULTILINE) for word in line.split()
}


def test_every_package_and_file_that_the_build_needs_is_copied() -> None:
    folders = {
        path.partition("/")[0]
        for path in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    }
    files = {"pyproject.toml", PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]}
    assert folders | files == COPIED


def test_the_build_context_has_exactly_the_copied_files() -> None:
    lines = (manifests.ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == COPIED


def test_the_image_has_every_program() -> None:
    for program in PROJECT["project"]["scripts"]:
        assert f"/opt/reprieve/bin/{program} --version" in TEXT


def test_the_image_has_the_pods_user() -> None:
    for program in ("reprieve-webhooks", "reprieve-operator"):
        pod = manifests.named("Deployment", program)["spec"]["template"]["spec"]
        user, group = pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]
        assert f"\nUSER {user}:{group}\n" in TEXT


def test_the_base_image_is_pinned_to_one_version() -> None:
    bases = set(re.findall(r"^FROM (\S+)", TEXT, re.MULTILINE))
    assert bases == {"python:3.13-slim-bookworm"}
