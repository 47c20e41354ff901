"""A kubeconfig that is missing, broken, or whose credentials were refused: one line says so."""

import subprocess
import sys
from pathlib import Path

import pytest

from reprieve_cli.cluster.connection import describe_error
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


def run(*words: object, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
    )


@pytest.mark.parametrize("case", CASES)
def test_a_broken_kubeconfig_is_named_in_one_line(case: str, tmp_path: Path) -> None:
    text, reason = CASES[case]
    path = tmp_path / "config"
    path.write_text(text)
    done = run("watch", "--once", "--kubeconfig", path, home=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"reprieve: {path}: ")
    assert reason in done.stderr


@pytest.mark.parametrize("words", [("watch", "--once"), ("watch", "--once", "-A")])
def test_a_missing_kubeconfig_says_where_one_is_expected(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    done = run(*words, home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"reprieve: no kubeconfig at {tmp_path}/.kube/config: "
        "pass --kubeconfig, or set KUBECONFIG\n"
    )


def test_refused_credentials_are_called_so() -> None:
    assert describe_error(ApiError(401, "Unauthorized", "Unauthorized")) == (
        "the API server refused your credentials (401 Unauthorized): they may have expired; log in "
        "again, or check the kubeconfig"
    )
