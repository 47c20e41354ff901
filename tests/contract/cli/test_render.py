"""`reprieve render`: its output, and that the committed files are its output."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from reprieve_cli.main import reprieve
from reprieve_policy.cel import policies
from reprieve_policy.config.settings import PolicySettings
from reprieve_testing import manifests

COMMITTED = manifests.MANIFESTS / "overlays" / "cel" / "policies.yaml"


def render(*words: object) -> Result:
    return CliRunner().invoke(reprieve, ["render", "policies", *map(str, words)])


def a_policy_map(folder: Path, **data: str) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "reprieve-policy"},
        "data": data,
    }
    other = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "other"},
        "data": {"ceiling": "1h"},
    }
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump_all([other, document]))
    return path


def test_the_committed_file_is_the_output_of_the_command() -> None:
    assert render().output == COMMITTED.read_text()


def test_the_limits_of_the_documented_policy_are_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    done = CliRunner().invoke(reprieve, ["render", "policy-defaults", "-o", str(path)])
    assert (done.exit_code, done.output) == (0, "")
    assert render("--policy", path).output == COMMITTED.read_text()


def test_the_output_is_what_the_policy_renders() -> None:
    assert list(yaml.safe_load_all(render().output)) == policies.render(PolicySettings())


def test_limits_are_those_of_the_given_policy(tmp_path: Path) -> None:
    output = tmp_path / "policies.yaml"
    done = render("--policy", a_policy_map(tmp_path, ceiling="45m"), "-o", output)
    assert (done.exit_code, done.output) == (0, "")
    assert "must be at most 45m, the limit set for this cluster" in output.read_text()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"ceiling": "soon"}, 'data[ceiling]: Invalid value: "soon"'),
        ({"colour": "red"}, 'data[colour]: Unsupported value: "colour"'),
    ],
)
def test_an_invalid_policy_is_refused_as_at_admission(
    tmp_path: Path, data: dict[str, str], message: str
) -> None:
    done = render("--policy", a_policy_map(tmp_path, **data))
    assert done.exit_code != 0
    assert message in done.output


@pytest.mark.parametrize(
    "text", ["", "- {", "[1]", "kind: ConfigMap", "kind: ConfigMap\nmetadata: []", "\x00"]
)
def test_a_file_without_a_policy_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    done = render("--policy", path)
    assert done.exit_code == 1
    assert done.output.startswith(f"Error: {path}: ")
