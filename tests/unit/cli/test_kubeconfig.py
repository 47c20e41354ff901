"""A kubeconfig that is missing, broken, or whose credentials were refused: one line says so."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reprieve_cli.cluster.connection import describe_error
from reprieve_cli.main import main
from reprieve_runtime.client import login
from reprieve_runtime.client.api import ApiError

PROGRAM = Path(sys.executable).with_name("reprieve")
CONFIG = "apiVersion: v1\nkind: Config\n"

CASES = {
    "a file that is not YAML": ("{{", "is not a kubeconfig"),
    "an empty file": ("", "is not a kubeconfig"),
    "a list instead of an object": ("- a\n", "is not a kubeconfig"),
    "contexts that are numbers": (
        f"{CONFIG}clusters: []\ncontexts: [1]\nusers: []\ncurrent-context: x\n",
        "is not a kubeconfig",
    ),
    "no current context": (CONFIG, "current-context"),
    "a context without its cluster": (
        CONFIG + "clusters: []\nusers: []\ncurrent-context: x\n"
        "contexts: [{name: x, context: {cluster: gone, user: u}}]\n",
        "Expected object with name gone",
    ),
}


Run = Callable[..., tuple[object, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `reprieve` in this process; return its exit status and what it printed."""
    # The client reads HOME and KUBECONFIG as it is imported.
    default = str(tmp_path / ".kube" / "config")
    monkeypatch.setattr(login.kubernetes_config, "KUBE_CONFIG_DEFAULT_LOCATION", default)

    def called(*words: object) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["reprieve", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return end.value.code, printed.out, printed.err

    return called


def missing(home: Path) -> str:
    return f"reprieve: no kubeconfig at {home}/.kube/config: pass --kubeconfig, or set KUBECONFIG\n"


@pytest.mark.parametrize("case", CASES)
def test_a_broken_kubeconfig_is_named_in_one_line(case: str, tmp_path: Path, run: Run) -> None:
    text, reason = CASES[case]
    path = tmp_path / "config"
    path.write_text(text)
    status, output, errors = run("watch", "--once", "--kubeconfig", path)
    assert (status, output, errors.count("\n")) == (2, "", 1)
    assert errors.startswith(f"reprieve: {path}: ")
    assert reason in errors


@pytest.mark.parametrize("words", [("watch", "--once"), ("watch", "--once", "-A")])
def test_a_missing_kubeconfig_says_where_one_is_expected(
    words: tuple[str, ...], tmp_path: Path, run: Run
) -> None:
    assert run(*words) == (2, "", missing(tmp_path))


def test_the_program_expects_a_kubeconfig_at_the_same_place(tmp_path: Path) -> None:
    done = subprocess.run(
        [PROGRAM, "watch", "--once"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", missing(tmp_path))


def test_refused_credentials_are_called_so() -> None:
    assert describe_error(ApiError(401, "Unauthorized", "Unauthorized")) == (
        "the API server refused your credentials (401 Unauthorized): they may have expired; log in "
        "again, or check the kubeconfig"
    )
