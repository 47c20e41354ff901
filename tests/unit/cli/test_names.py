"""A name that no object can have ends each command before it connects: it is part of a URL path."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from reprieve_cli import main
from reprieve_cli.names import NamespaceNameType, ObjectNameType, namespace_violation

NO_NAMESPACES = ("../pods", "a/b", "%2e%2e", "..", "T", "a.b", "-a", "a-", "ä", "a" * 64)
NO_NAMES = ("..", "%2e%2e", "Train", "train.", "a..b", "-train", "a" * 254, "train\n")


def parameters() -> Iterator[tuple[str, click.Parameter]]:
    for name in main.COMMANDS:
        command = main.reprieve.get_command(click.Context(main.reprieve), name)
        assert command is not None
        for parameter in command.params:
            yield name, parameter


def run(*words: str) -> Result:
    return CliRunner().invoke(main.reprieve, words, env={"KUBECONFIG": "/nonexistent"})


def test_every_option_for_a_namespace_takes_only_the_name_of_one() -> None:
    found = {
        (command, parameter.name): parameter.type
        for command, parameter in parameters()
        if "--namespace" in parameter.opts or parameter.name == "operator_namespace"
    }
    assert {"audit", "check", "evict", "watch", "simulate"} <= {command for command, _ in found}
    assert {kind for kind in found.values() if not isinstance(kind, NamespaceNameType)} == set()


@pytest.mark.parametrize("name", NO_NAMESPACES)
def test_what_no_namespace_is_named_is_refused_with_what_would_be(name: str) -> None:
    result = run("audit", f"--namespace={name}")
    assert result.exit_code == 2
    assert f'"{name}" must be the name of a Namespace: at most 63 lower-case letters, digits' in (
        " ".join(result.output.split())
    )


@pytest.mark.parametrize("name", ["a", "0", "team-a", "a" * 63, "kube-system"])
def test_what_a_namespace_may_be_named_is_accepted(name: str) -> None:
    assert namespace_violation(name) == ""


SUBJECTS: dict[str, Sequence[str]] = {
    "a pod to evict": ("evict",),
    "a pod to cancel": ("cancel",),
    "a pod to explain": ("explain",),
    "a node": ("reclaim",),
    "the operator's Lease": ("cleanup", "--lease"),
}


@pytest.mark.parametrize("words", SUBJECTS.values(), ids=SUBJECTS)
@pytest.mark.parametrize("name", NO_NAMES)
def test_what_no_object_is_named_is_refused(words: Sequence[str], name: str) -> None:
    result = run(*words, "--", name) if len(words) == 1 else run(*words, name)
    assert result.exit_code == 2
    assert "must be the name of an object: at most 253 lower-case letters" in (
        " ".join(result.output.split())
    )


BLANK: dict[str, Sequence[str]] = {
    "the selector of pods to evict": ("evict", "-l", "{}"),
    "the selector beside a pod to evict": ("evict", "train", "-l", "{}"),
    "the selector of pods to cancel": ("cancel", "-A", "-l", "{}"),
    "the selector beside a pod to cancel": ("cancel", "train", "-l", "{}"),
    "a pod to evict": ("evict", "train", "{}"),
    "a pod to cancel": ("cancel", "train", "{}"),
    "a pod to explain": ("explain", "{}"),
    "a node": ("reclaim", "{}"),
    "the operator's Lease": ("cleanup", "--lease", "{}"),
    "the operator's namespace": ("cleanup", "--operator-namespace", "{}"),
}
"""What a variable that is not set would leave empty. Without the refusal, all pods would count."""


WITH_NAMESPACE = [name for name, found in parameters() if "--namespace" in found.opts]


@pytest.mark.parametrize("command", WITH_NAMESPACE)
@pytest.mark.parametrize("blank", ["", " "], ids=["empty", "a space"])
def test_a_blank_namespace_is_no_other_one(command: str, blank: str) -> None:
    """Without this, `-n "$TEAM"` would clean the context's namespace, or check all of them."""
    result = run(command, "-n", blank)
    assert result.exit_code == 2
    assert result.output.splitlines()[-1] == (
        "Error: Invalid value for '-n' / '--namespace': the name of the Namespace is empty"
    )


@pytest.mark.parametrize("words", BLANK.values(), ids=BLANK)
@pytest.mark.parametrize("blank", ["", " ", " \t\n"], ids=["empty", "a space", "white space"])
def test_what_is_blank_is_refused(words: Sequence[str], blank: str) -> None:
    result = run(*(word.format(blank) for word in words))
    assert result.exit_code == 2
    assert "Error: Invalid value for " in result.output


def test_the_empty_name_of_a_dump_is_not_the_current_folder() -> None:
    result = run("simulate", "--preemptor", "a.yaml", "--from", "")
    assert (result.exit_code, "a name is empty" in result.output) == (2, True)


def test_the_name_behind_a_kind_is_checked_too() -> None:
    for words in (("evict", "job/.."), ("explain", "pod/%2e%2e"), ("reclaim", "../pods/node-1")):
        assert "must be the name of an object" in " ".join(run(*words).output.split())


def test_an_object_may_be_named_as_the_api_server_allows() -> None:
    for name in ("train", "train-0.workers", "0", "a" * 253):
        assert ObjectNameType(prefix="node/").convert(f"node/{name}", None, None) == name


def test_the_namespace_of_the_context_is_checked_too(tmp_path: Path) -> None:
    context = {"name": "c", "context": {"cluster": "k", "namespace": "../pods"}}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [context],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    result = run("evict", "train", "--kubeconfig", str(tmp_path / "config"))
    assert result.exit_code == 2
    assert result.output.startswith(
        'reprieve: the context of the kubeconfig: namespace: "../pods" must be the name of a '
    )
