"""Both programs say in one sentence why they cannot start, and never with a traceback.

A start as a process takes half a second of a processor, most of it for imports. One test for each
exit status starts processes; the others call `main` in this process.
"""

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import reprieve_operator.main
import reprieve_webhooks.main

SECONDS = 60
MAINS: dict[str, Callable[[], None]] = {
    "reprieve-webhooks": reprieve_webhooks.main.main,
    "reprieve-operator": reprieve_operator.main.main,
}
BAD_SETTINGS = {
    "log format must be one of json, text": ("--log-format", "xml"),
    "LOUD": ("--log-level", "loud"),
    "--listen-port: 'many' is not a valid integer.": ("--listen-port", "many"),
    "--listen-port must be between 0 and 65535": ("--listen-port", "65536"),
    "--metrics-port must be between 0 and 65535": ("--metrics-port", "-1"),
    "--metrics-authentication: 'open' is not one of 'token', 'none'.": (
        "--metrics-authentication",
        "open",
    ),
    "--no-such-flag": ("--no-such-flag", "x"),
}


def run(program: str, *flags: str) -> tuple[int, str]:
    command = [str(Path(sys.executable).with_name(program)), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


Main = Callable[..., tuple[object, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Main:
    """Call `main` of a program in this process; return its exit status and standard error."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)

    def called(program: str, *flags: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", [program, *flags])
        with pytest.raises(SystemExit) as end:
            MAINS[program]()
        errors = capsys.readouterr().err
        assert "Traceback" not in errors
        return end.value.code, errors

    return called


@pytest.mark.parametrize("program", MAINS)
@pytest.mark.parametrize(("says", "flags"), BAD_SETTINGS.items(), ids=BAD_SETTINGS)
def test_a_bad_setting_ends_the_program_with_2(
    program: str, says: str, flags: tuple[str, ...], call: Main
) -> None:
    status, output = call(program, *flags)
    assert status == 2
    assert output.startswith(f"{program}: ")
    assert says in output


def test_a_bad_address_ends_the_webhooks_with_2(call: Main) -> None:
    status, output = call("reprieve-webhooks", "--serving-ips", "nonsense")
    assert status == 2
    assert "nonsense" in output


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("0", "--workers must be 1 or more"),
        ("-1", "--workers must be 1 or more"),
        ("two", "--workers: 'two' is not a valid integer."),
    ],
)
def test_a_number_of_workers_that_is_none_ends_the_webhooks_with_2(
    value: str, says: str, call: Main
) -> None:
    assert call("reprieve-webhooks", "--workers", value) == (2, f"reprieve-webhooks: {says}\n")


def test_agents_without_an_image_end_the_webhooks_with_2(call: Main) -> None:
    status, output = call("reprieve-webhooks", "--agent-image", "")
    assert status == 2
    assert "--agent-image must be the name of an image" in output


@pytest.mark.parametrize(
    "program", ["reprieve-operator", pytest.param("reprieve-webhooks", marks=pytest.mark.slow)]
)
def test_a_process_with_a_bad_setting_ends_with_2(program: str) -> None:
    status, output = run(program, "--listen-port", "many")
    assert status == 2
    assert output == f"{program}: --listen-port: 'many' is not a valid integer.\n"


@pytest.mark.parametrize("program", MAINS)
def test_a_missing_kubeconfig_is_named_and_the_exit_status_is_1(
    program: str, tmp_path: Path, call: Main
) -> None:
    missing = tmp_path / "kubeconfig"
    status, output = call(program, "--kubeconfig", str(missing))
    assert status == 1
    assert str(missing) in output


@pytest.mark.parametrize(
    "program", ["reprieve-webhooks", pytest.param("reprieve-operator", marks=pytest.mark.slow)]
)
def test_a_process_with_a_missing_kubeconfig_ends_with_1(program: str, tmp_path: Path) -> None:
    missing = tmp_path / "kubeconfig"
    status, output = run(program, "--kubeconfig", str(missing))
    assert status == 1
    assert str(missing) in output


@pytest.mark.parametrize("program", MAINS)
def test_a_kubeconfig_without_a_cluster_leads_to_exit_status_1(
    program: str, tmp_path: Path, call: Main
) -> None:
    empty = tmp_path / "kubeconfig"
    empty.write_text("apiVersion: v1\nkind: Config\n")
    status, output = call(program, "--kubeconfig", str(empty))
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


def test_the_error_for_contradicting_settings_names_both(call: Main) -> None:
    status, output = call(
        "reprieve-operator", "--lease-duration-seconds", "5", "--poll-interval-seconds", "0"
    )
    assert status == 2
    assert [line.partition(": ")[0] for line in output.splitlines()] == ["reprieve-operator"] * 2
    assert "--renew-deadline-seconds must be below --lease-duration-seconds" in output
    assert "--poll-interval-seconds must be above 0" in output
