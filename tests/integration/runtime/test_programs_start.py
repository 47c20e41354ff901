"""Both programs say in one sentence why they cannot start, and never with a traceback.

What `reprieve-webhooks` says of bad settings is in `test_webhooks_program.py`.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 60
PROGRAMS = ("reprieve-webhooks", "reprieve-operator")


def run(program: str, *flags: str) -> tuple[int, str]:
    command = [str(Path(sys.executable).with_name(program)), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--log-format", "xml"), "log format must be one of json, text"),
        (("--log-level", "loud"), "LOUD"),
        (("--listen-port", "many"), "--listen-port: 'many' is not a valid integer."),
    ],
)
def test_a_bad_setting_ends_the_operator_with_2(flags: tuple[str, ...], says: str) -> None:
    status, output = run("reprieve-operator", *flags)
    assert status == 2
    assert output.startswith("reprieve-operator: ")
    assert says in output


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_missing_kubeconfig_is_named_and_the_exit_status_is_1(
    program: str, tmp_path: Path
) -> None:
    missing = tmp_path / "kubeconfig"
    status, output = run(program, "--kubeconfig", str(missing))
    assert status == 1
    assert str(missing) in output


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_kubeconfig_without_a_cluster_leads_to_exit_status_1(
    program: str, tmp_path: Path
) -> None:
    empty = tmp_path / "kubeconfig"
    empty.write_text("apiVersion: v1\nkind: Config\n")
    status, output = run(program, "--kubeconfig", str(empty))
    assert status == 1
    assert "cannot run" in output


def test_the_agent_rejects_missing_and_invalid_flags(tmp_path: Path) -> None:
    assert run("reprieve-agent", "--request", "/run/x/y")[0] == 2
    assert run("reprieve-agent", "--request", "here", "--address", "127.0.0.1")[0] == 2
    assert run("reprieve-agent", "--request", "/x", "--address", "127.0.0.1")[0] == 2
    assert (
        run(
            "reprieve-agent", "--request", "/run/x/y", "--signal", "KILL", "--address", "127.0.0.1"
        )[0]
        == 2
    )
    status, output = run(
        "reprieve-agent", "--request", f"{tmp_path}/none/request", "--address", "127.0.0.1"
    )
    assert (status, json.loads(output)["message"]) == (1, "cannot start")


def test_the_error_for_contradicting_settings_names_both() -> None:
    status, output = run(
        "reprieve-operator", "--lease-duration-seconds", "5", "--poll-interval-seconds", "0"
    )
    assert status == 2
    assert [line.partition(": ")[0] for line in output.splitlines()] == ["reprieve-operator"] * 2
    assert "--renew-deadline-seconds must be below --lease-duration-seconds" in output
    assert "--poll-interval-seconds must be above 0" in output
