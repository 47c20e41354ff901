"""No text of a tenant, of an API server's answer or of a file drives the terminal of a command."""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reprieve_cli import main
from reprieve_cli.output import terminal
from reprieve_policy import keys
from reprieve_policy.kube.kinds import KINDS
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_testing.safe_texts import is_showable
from reprieve_testing.servers.stub_api import StubApi, stub_api

SEEN = "pwned"
FORGED = "evict  team/other"
HOSTILE = f"\x1b]0;{SEEN}\x07\x1b[2J\x1b[7m\x9b31m\u202e\x7f\r\n{FORGED}"
SECONDS = 60

NOW = datetime.now(UTC)
STATE = eviction.Eviction(
    eviction_id="e1", phase=Phase.HINTED, requested_at=NOW, deadline=NOW, initiator="sre"
)
SYSTEM = "/api/v1/namespaces/reprieve-system"
TEAM = "/api/v1/namespaces/team"
REVISIONS = "/apis/apps/v1/namespaces/reprieve-system/controllerrevisions"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"


def owned_by(kind: str, group: str) -> dict[str, Any]:
    return {"apiVersion": f"{group}/v1", "kind": kind, "name": HOSTILE, "uid": "o", "controller": True}  # fmt: skip  # noqa: E501


def a_pod(name: str, owner: Mapping[str, Any], *, state: bool = False) -> dict[str, Any]:
    labels = {keys.SOFT_EVICTION: HOSTILE} if state else {keys.PREEMPTION_CLASS: "11"}
    annotations = {
        keys.KOORDINATOR_GANG: HOSTILE,
        keys.DISRUPTION_MODE: "gang",
        keys.CHECKPOINT_HINT: HOSTILE,
        **({keys.EVICTION: eviction.render(STATE)} if state else {}),
    }
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [owner],
    }
    spec = {"nodeName": "n", "priority": 1, "containers": [{"name": "main", "image": "none"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}  # fmt: skip  # noqa: E501


PODS = {
    "p": a_pod("p", owned_by(HOSTILE, "made.up")),
    "d": a_pod("d", owned_by("DaemonSet", "apps")),
    "v": a_pod("v", owned_by(HOSTILE, "made.up"), state=True),
}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n", "labels": {keys.HOME_NAMESPACE: "home"}},
    "spec": {"taints": [{"key": HOSTILE, "value": HOSTILE, "effect": "NoSchedule"}]},
    "status": {"allocatable": {"cpu": "1", HOSTILE: "1", "pods": "10"}},
}
LEASE = {
    "metadata": {"name": "reprieve-operator"},
    "spec": {
        "holderIdentity": HOSTILE,
        "leaseDurationSeconds": 10**6,
        "renewTime": timestamp.render(NOW),
    },
}
RECORD = {
    "metadata": {
        "name": "bare",
        "labels": {keys.BARE_POD: "team"},
        "annotations": {keys.BARE_POD: HOSTILE},
    }
}
STEP = {
    "metadata": {"name": "e", "namespace": "team", "uid": "e"},
    "eventTime": timestamp.render(NOW),
    "reason": HOSTILE,
    "note": HOSTILE,
    "regarding": {"kind": "Pod", "namespace": "team", "name": "v", "uid": "uid-v"},
}
COLLECTIONS: Mapping[str, Mapping[str, Any]] = {
    "/api/v1/pods": PODS,
    f"{TEAM}/pods": PODS,
    "/api/v1/nodes": {"n": NODE},
    "/api/v1/namespaces": {
        name: {"kind": "Namespace", "metadata": {"name": name}} for name in ("team", "home")
    },
    f"{SYSTEM}/configmaps": {},
    "/apis/scheduling.k8s.io/v1/priorityclasses": {},
    "/apis/coordination.k8s.io/v1/namespaces/reprieve-system/leases": {"reprieve-operator": LEASE},
    "/apis/apps/v1/namespaces/reprieve-system/deployments": {},
    f"{WEBHOOKS}/mutatingwebhookconfigurations": {"reprieve-webhooks": {"metadata": {}}},
    f"{WEBHOOKS}/validatingwebhookconfigurations": {},
    REVISIONS: {"bare": RECORD},
    "/apis/events.k8s.io/v1/namespaces/team/events": {"e": STEP},
    "/apis": {},
    # What is served: pods only.
    "/api": {"v1": {"resources": [{"name": "pods", "kind": "Pod"}]}},
    **{f"/apis/{row.group}": {} for row in KINDS.values() if row.group},
}
POLICY = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "reprieve-policy", "namespace": "reprieve-system"},
    "data": {"ceiling": HOSTILE, HOSTILE: "1"},
}
PREEMPTOR = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "urgent", "namespace": "team"},
    "spec": {
        "priority": 10,
        "priorityClassName": HOSTILE,
        "containers": [
            {
                "name": "main",
                "image": "none",
                "resources": {"requests": {"cpu": "4", HOSTILE: "1"}},
            }
        ],
    },
}
FILES = {
    "pod": PODS["p"],
    "policy": POLICY,
    "preemptor": PREEMPTOR,
    "unreadable": {"kind": HOSTILE},
}

TEAMS = ("-n", "team")
LINES: Mapping[str, Sequence[Sequence[str]]] = {
    "check": [
        ("{pod}", "{policy}", "{unreadable}", "{hostile}", "-o", each)
        for each in ("text", "json", "sarif", "github")
    ],
    "audit": [("-o", each, "--strict") for each in ("table", "json", "prometheus")],
    "evict": [("p", *TEAMS), ("v", *TEAMS), ("none", *TEAMS), ("-l", "a", *TEAMS)],
    "cancel": [("p", *TEAMS), ("v", *TEAMS)],
    "reclaim": [("n", "--yes"), ("n", "--yes", "--close")],
    "explain": [(name, *TEAMS, "-o", each) for name in PODS for each in ("text", "json")],
    "simulate": [
        ("--preemptor", "{preemptor}", "-o", "text"),
        ("--preemptor", "{pod}", "-o", "text"),
        ("--preemptor", "{pod}", "-o", "json"),
        ("--preemptor", "{unreadable}"),
    ],
    "status": [("-o", "text"), ("-o", "json")],
    "cleanup": [(), ("--force",)],
    "watch": [
        ("--once", *TEAMS, *words, "-o", each)
        for words in ((), ("--steps",))
        for each in ("text", "json")
    ],
    "render": [("policies", "--policy", "{policy}")],
}
"""The arguments with which each command is run; `{NAME}` is a file."""
WITHOUT_CLUSTER = {"check", "render"}


@contextmanager
def served(folder: Path) -> Iterator[StubApi]:
    """Serve a stub in a thread: a command has the main thread, for the sake of its signals."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    collections = {path: dict(found) for path, found in COLLECTIONS.items()}
    context = stub_api(folder, collections=collections, refusal=HOSTILE)
    stub, _ = asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result(SECONDS)
    loop.call_soon_threadsafe(stub.lists_released.set)
    try:
        yield stub
    finally:
        leaving = context.__aexit__(None, None, None)
        asyncio.run_coroutine_threadsafe(leaving, loop).result(SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(SECONDS)
        loop.close()


def write_files(folder: Path) -> Mapping[str, str]:
    paths = {name: folder / f"{name}.json" for name in FILES}
    for name, path in paths.items():
        path.write_text(json.dumps(FILES[name]), encoding="utf-8")
    hostile = folder / f"{HOSTILE.replace('/', '')}.json"
    hostile.write_text("{", encoding="utf-8")
    return {name: str(path) for name, path in {**paths, "hostile": hostile}.items()}


def printed(command: str, words: Sequence[str], folder: Path, *, refuses: bool) -> str:
    """Run a command as on a terminal; return what it prints, without the commands' own styles."""
    files = write_files(folder)
    arguments = [command, *(word.format(**files) for word in words)]
    if command not in WITHOUT_CLUSTER:
        arguments += ["--kubeconfig", str(folder / "kubeconfig")]
    with served(folder) as stub:
        if refuses:
            patches = ("/api/v1/nodes/n", *(f"{TEAM}/pods/{name}" for name in PODS))
            stub.refuses.update(dict.fromkeys(patches, 403))
        done = CliRunner().invoke(main.reprieve, arguments, color=True, catch_exceptions=False)
    return terminal._STYLE.sub("", done.output)


def test_each_command_has_a_case() -> None:
    assert set(LINES) == set(main.COMMANDS)


@pytest.mark.parametrize("refuses", [False, True], ids=["", "refused"])
@pytest.mark.parametrize("command", LINES)
def test_no_text_drives_the_terminal_or_forges_a_line(
    command: str, tmp_path: Path, *, refuses: bool
) -> None:
    shown = [printed(command, words, tmp_path, refuses=refuses) for words in LINES[command]]
    lines = [line for text in shown for line in text.split("\n")]
    unsafe = [line for line in lines if not (is_showable(line) and line.isprintable())]
    assert unsafe == []
    assert [line for line in lines if line.strip().startswith(FORGED)] == []
    # Without this, a case could show none of the texts that it is about.
    assert any(SEEN in line for line in lines), shown


def test_the_text_of_a_usage_error_or_of_an_unreadable_setting_drives_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = write_files(tmp_path)
    render = ["render", "policies", "--policy", files["policy"]]
    for words in (render, ["watch", HOSTILE], [HOSTILE]):
        monkeypatch.setattr("sys.argv", ["reprieve", *words])
        with pytest.raises(SystemExit):
            main.main()
        errors = capsys.readouterr().err
        assert SEEN in errors
        assert [line for line in errors.split("\n") if not line.isprintable()] == []


def test_an_internal_error_drives_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr(main.reprieve, "main", fail)
    with pytest.raises(SystemExit):
        main.main()
    errors = capsys.readouterr().err
    assert f"RuntimeError: \\x1b]0;{SEEN}" in errors
    assert [line for line in errors.split("\n") if not line.isprintable()] == []
