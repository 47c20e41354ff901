"""`reprieve check`: its input, its output and its exit status."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from reprieve_cli.manifests import sources
from reprieve_policy.facts import JobRequests
from reprieve_policy.gangs import job_requests
from reprieve_policy.gangs.job_requests import JobPod
from reprieve_testing.check_command import pod, run, write

GOOD = pod(labels='{reprieve.dev/preemption-class: "4"}')
BAD = pod(labels='{reprieve.dev/preemption-class: "11"}')
A_MAPPING = "must be a mapping of keys to strings"
LABEL = "metadata.labels[reprieve.dev/preemption-class]"
REFUSED = (
    f'{LABEL}: Invalid value: "11": must be between 0 and 10, in plain digits [preemption-class]'
)
JSON_BAD = """\
{"apiVersion": "v1",
 "kind": "Pod",
 "metadata": {"name": "p", "namespace": "team", "labels": {
  "reprieve.dev/preemption-class": "11"}}}"""


def test_a_manifest_without_findings_prints_one_line_and_exits_with_0(tmp_path: Path) -> None:
    checked = run(write(tmp_path, "a.yaml", GOOD))
    assert (checked.status, checked.output) == (0, "1 object checked: 0 violations, 0 warnings\n")


def test_a_violation_has_file_line_object_path_and_rule_and_exits_with_1(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", f"---\n{GOOD}---\n{BAD}")
    checked = run(path)
    assert checked.status == 1
    assert checked.lines == [f"{path}:14: error: Pod team/p: {REFUSED}"]


def test_all_violations_of_an_object_are_printed_in_the_order_of_lines(tmp_path: Path) -> None:
    text = pod(
        annotations="{reprieve.dev/checkpoint-timeout: soon}",
        labels='{reprieve.dev/preemption-class: "x"}',
    )
    lines = run(write(tmp_path, "a.yaml", text)).lines
    assert [line.split(":")[1] for line in lines] == ["6", "7"]


def test_labels_that_are_a_list_are_refused_on_a_kind_without_rules(tmp_path: Path) -> None:
    text = (
        "apiVersion: scheduling.x-k8s.io/v1alpha1\nkind: PodGroup\n"
        "metadata:\n  name: g\n  labels: [a, b]\n"
    )
    path = write(tmp_path, "a.yaml", text)
    checked = run(path)
    assert checked.status == 1
    assert checked.lines == [
        f'{path}:5: error: PodGroup g: metadata.labels: Invalid value: "[…]": {A_MAPPING} [form]'
    ]


def test_the_pod_group_of_another_project_is_checked_by_its_own_keys(tmp_path: Path) -> None:
    text = (
        "apiVersion: scheduling.x-k8s.io/v1alpha1\nkind: PodGroup\nmetadata:\n  name: g\n"
        "  namespace: team\n  annotations:\n    reprieve.dev/disruption-mode: each\n"
    )
    path = write(tmp_path, "a.yaml", text)
    key = "metadata.annotations[reprieve.dev/disruption-mode]"
    accepted = 'Unsupported value: "each": supported values: "pod", "gang" [disruption-mode]'
    assert run(path).lines == [f"{path}:7: error: PodGroup team/g: {key}: {accepted}"]


def test_a_misspelled_key_is_warned_of_and_refused_where_check_is_strict(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", pod(annotations='{reprieve.dev/checkpoint-hnt: "grpc://:1"}'))
    key = "metadata.annotations[reprieve.dev/checkpoint-hnt]"
    shown = f'{key}: unknown; did you mean "checkpoint-hint"?'
    assert run(path).status == 0
    strict = run("--strict", path)
    assert strict.status == 1
    assert strict.lines == [f"{path}:6: warning: Pod team/p: {shown} [unknown-key]"]


def test_a_misspelled_key_is_refused_where_the_policy_says_so(tmp_path: Path) -> None:
    policy = write(
        tmp_path,
        "policy/policy.yaml",
        "apiVersion: v1\nkind: ConfigMap\n"
        "metadata: {name: reprieve-policy, namespace: reprieve-system}\n"
        "data: {unknownKeys: refuse}\n",
    )
    path = write(tmp_path, "a.yaml", pod(labels='{reprieve.dev/premption-class: "4"}'))
    checked = run(path, "--policy", policy.parent)
    assert checked.status == 1
    path_shown = "metadata.labels[reprieve.dev/premption-class]"
    assert f": error: Pod team/p: {path_shown}: Unsupported value: " in checked.output


def test_a_mark_that_means_nothing_is_refused(tmp_path: Path) -> None:
    checked = run(write(tmp_path, "a.yaml", pod(labels='{reprieve.dev/soft-eviction: "true"}')))
    assert checked.status == 1
    assert 'Unsupported value: "true": supported values: "requested"' in checked.output


INPUTS: dict[str, tuple[str, str | bytes, int]] = {
    "YAML": ("a.yaml", BAD, 6),
    "JSON": ("a.json", JSON_BAD, 4),
    "JSON in a file named .yaml": ("a.yaml", JSON_BAD, 4),
    "YAML in braces": (
        "a.yaml",
        "{apiVersion: v1, kind: Pod, metadata: {labels: {reprieve.dev/preemption-class: x}}}",
        1,
    ),
    "line ends of Windows": ("a.yaml", BAD.replace("\n", "\r\n"), 6),
    "a byte order mark": ("a.yaml", b"\xef\xbb\xbf" + BAD.encode(), 6),
    "a file without a suffix": ("manifest", BAD, 6),
    "a list": ("a.yaml", "apiVersion: v1\nkind: List\nitems:\n- " + BAD.replace("\n", "\n  "), 9),
    "a list in a list": (
        "a.yaml",
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  items:\n  - "
        + BAD.replace("\n", "\n    "),
        12,
    ),
    "a typed list, whose items have no kind": (
        "a.yaml",
        (
            "apiVersion: v1\nkind: PodList\nitems:\n"
            "- metadata:\n    labels: {reprieve.dev/preemption-class: x}\n"
        ),
        5,
    ),
    "a list as kubectl prints it": (
        "a.json",
        '{"apiVersion":"v1","kind":"List","items":[\n' + JSON_BAD + "]}",
        5,
    ),
    "an alias": (
        "a.yaml",
        (
            "apiVersion: v1\nkind: Pod\nspec:\n  nodeSelector: &a\n"
            '    reprieve.dev/preemption-class: "11"\nmetadata:\n  labels: *a\n'
        ),
        5,
    ),
}


@pytest.mark.parametrize("sentence", INPUTS)
def test_every_form_of_a_manifest_is_checked(tmp_path: Path, sentence: str) -> None:
    name, content, line = INPUTS[sentence]
    path = write(tmp_path, name, content)
    checked = run(path)
    assert checked.status == 1
    (finding,) = checked.lines
    assert finding.startswith(f"{path}:{line}: error: Pod")


TRIAL = """\
spec:
  trials:
  - template:
      metadata:
        labels:
          reprieve.dev/preemption-class: "11"
"""
JOB_SET = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train, namespace: team}
spec:
  replicatedJobs:
  - name: workers
    template:
      spec:
        template:
          metadata:
            labels:
              reprieve.dev/preemption-class: "11"
"""
SWEEP = "apiVersion: example.com/v1\nkind: Sweep\nmetadata: {name: s, namespace: team}\n" + TRIAL
LISTING = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: reprieve-policy, namespace: reprieve-system}
data: {templateKinds: "example.com/Sweep: spec.trials[*].template"}
"""


def test_a_known_kind_of_another_project_is_checked_by_its_pod_templates(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", JOB_SET)
    template = "spec.replicatedJobs[0].template.spec.template"
    assert run(path).lines == [f"{path}:12: error: JobSet team/train: {template}.{REFUSED}"]


def test_a_kind_that_the_policy_lists_is_checked_whatever_file_has_the_policy(
    tmp_path: Path,
) -> None:
    sweep = write(tmp_path, "a.yaml", SWEEP)
    assert run(sweep).status == 0
    listing = write(tmp_path, "b.yaml", LISTING)
    assert run(sweep, listing).lines == [
        f"{sweep}:9: error: Sweep team/s: spec.trials[0].template.{REFUSED}"
    ]


UNREADABLE: dict[str, tuple[str | bytes, str]] = {
    "a list that does not end": ("a: [\n", "2: unreadable: did not find expected node content"),
    "a text": ("just words", "1: unreadable: not a Kubernetes object: needs apiVersion and kind"),
    "a list of texts": (
        "- a\n- b",
        "1: unreadable: not a Kubernetes object: needs apiVersion and kind",
    ),
    "a mapping without a kind": (
        "\n\na: 1",
        "3: unreadable: not a Kubernetes object: needs apiVersion and kind",
    ),
    "a kind that is a list": (
        "apiVersion: v1\nkind: [Pod]",
        "1: unreadable: not a Kubernetes object: needs kind",
    ),
    "only the apiVersion is missing": (
        "kind: Pod\nmetadata: {name: p}",
        "1: unreadable: not a Kubernetes object: needs apiVersion",
    ),
    "a List whose items are a text": (
        "apiVersion: v1\nkind: List\nitems: a text",
        "3: unreadable: items must be a list",
    ),
    "a template of Helm": (
        "kind: Pod\nmetadata:\n  labels: {{- toYaml .Values.labels | nindent 4 }}\n",
        (
            "3: unreadable: did not find expected node content; "
            "is it a template of Helm? helm template . | reprieve check -"
        ),
    ),
    "a List with an item that is not an object": (
        "apiVersion: v1\nkind: List\nitems:\n- a: 1",
        "4: unreadable: not a Kubernetes object: needs apiVersion and kind",
    ),
    "a key that appears twice": (
        "kind: Pod\napiVersion: v1\nkind: Pod\n",
        '3: unreadable: the key "kind" appears twice in one mapping',
    ),
    "another encoding": ("a: 1\nb: é\n".encode("latin-1"), "2: unreadable: not UTF-8 text"),
    "UTF-16": ("a: 1\n".encode("utf-16"), "1: unreadable: not UTF-8 text"),
}


@pytest.mark.parametrize("sentence", UNREADABLE)
def test_an_unreadable_file_prints_one_sentence_with_the_line_and_exits_with_2(
    tmp_path: Path, sentence: str
) -> None:
    content, message = UNREADABLE[sentence]
    path = write(tmp_path, "a.yaml", content)
    checked = run(path)
    assert checked.status == 2
    assert checked.lines == [f"{path}:{message}"]
    assert checked.output.endswith(
        "0 objects checked: 0 violations, 0 warnings; 1 could not be read\n"
    )


def test_the_rest_is_checked_if_something_cannot_be_read(tmp_path: Path) -> None:
    first = write(tmp_path, "a.yaml", f"a: [\n---\n{BAD}")
    second = write(tmp_path, "b.yaml", BAD)
    checked = run(first, tmp_path / "missing.yaml", second)
    assert checked.status == 2
    assert checked.lines == [
        f"{first}:2: unreadable: did not find expected node content",
        f"{first}:8: error: Pod team/p: {REFUSED}",
        f"{tmp_path}/missing.yaml: unreadable: no such file or directory",
        f"{second}:6: error: Pod team/p: {REFUSED}",
    ]


def test_a_file_without_a_document_causes_no_error(tmp_path: Path) -> None:
    checked = run(write(tmp_path, "a.yaml", "---\n# nothing\n---\n"))
    assert (checked.status, checked.output) == (0, "0 objects checked: 0 violations, 0 warnings\n")


def test_a_file_that_is_too_large_is_not_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_BYTES", 1024 * 1024)
    path = write(tmp_path, "a.yaml", "# " + "x" * 1024 * 1024)
    assert run(path).lines == [f"{path}: unreadable: larger than 1 MiB: split it"]


def test_ten_megabytes_in_one_text_are_read(tmp_path: Path) -> None:
    text = pod(
        annotations="{other: " + "x" * 10_000_000 + "}",
        labels='{reprieve.dev/preemption-class: "11"}',
    )
    path = write(tmp_path, "a.yaml", text)
    assert run(path).lines == [f"{path}:7: error: Pod team/p: {REFUSED}"]


def test_a_dash_is_standard_input() -> None:
    checked = run("-", stdin=BAD.encode())
    assert (checked.status, checked.lines) == (1, [f"stdin:6: error: Pod team/p: {REFUSED}"])


@pytest.mark.parametrize("nothing", [b"", b" \n"])
def test_an_empty_standard_input_is_an_error_as_the_command_before_the_pipe_failed(
    nothing: bytes,
) -> None:
    checked = run("-", stdin=nothing)
    assert (checked.status, checked.lines) == (2, ["stdin: unreadable: it is empty"])


def test_a_folder_means_its_manifests_and_with_r_those_in_folders_below(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yml", "notes.txt", "below/c.json"):
        write(tmp_path, name, JSON_BAD if name.endswith("json") else BAD)
    assert len(run(tmp_path).lines) == 2
    assert len(run("-R", tmp_path).lines) == 3


def test_a_value_that_is_not_rendered_has_the_command_that_renders_it(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", BAD.replace("11", "{{ .Values.class }}"))
    [line] = run(path).lines
    assert line.endswith(
        "in plain digits; is it a template of Helm? helm template . | reprieve check - "
        "[preemption-class]"
    )


def test_a_folder_without_manifests_is_reported(tmp_path: Path) -> None:
    write(tmp_path, "below/a.yaml", GOOD)
    reason = "unreadable: no .yaml, .yml or .json file in it"
    assert run(tmp_path).lines == [f"{tmp_path}: {reason}; -R also reads the folders below"]
    empty = write(tmp_path, "empty/x", "").parent
    assert run("-R", empty).lines == [f"{empty}: {reason}"]


OTHER_FILES = {
    "kustomization.yaml": "resources: [a.yaml]\n",
    "Chart.yaml": "apiVersion: v2\nname: chart\nversion: 0.1.0\n",
    "values.yaml": "class: 4\n",
    "package.json": '{"name": "web", "version": "1.0.0"}',
    "tsconfig.json": '{\n  // a comment\n  "strict": true\n}',
    ".github/workflows/ci.yaml": "on: push\njobs: {a: {steps: [{run: '${{ github.sha }}'}]}}\n",
    "list.yaml": "- a\n- b\n",
}


def test_files_of_a_folder_that_hold_no_objects_are_counted(tmp_path: Path) -> None:
    for name, content in OTHER_FILES.items():
        write(tmp_path, name, content)
    write(tmp_path, "a.yaml", GOOD)
    checked = run("-R", tmp_path)
    assert (checked.status, checked.output) == (
        0,
        "1 object checked: 0 violations, 0 warnings; 7 files without Kubernetes objects\n",
    )
    assert run("--policy", tmp_path, "-R", tmp_path).status == 0


def test_a_file_that_is_named_or_that_holds_an_object_too_must_hold_only_objects(
    tmp_path: Path,
) -> None:
    kustomization = write(tmp_path, "kustomization.yaml", "resources: []\n")
    assert run(kustomization).lines == [
        (
            f"{kustomization}:1: unreadable: not a Kubernetes object: needs apiVersion and kind; "
            f"try kubectl kustomize {tmp_path} | reprieve check -"
        )
    ]
    write(tmp_path, "folder/a.yaml", f"{GOOD}---\na: b\n")
    assert run(tmp_path / "folder").status == 2


BROKEN_OBJECTS = {
    "a kind is missing": "apiVersion: v1\nmetadata: {name: p}\n",
    "the YAML is broken": "apiVersion: v1\nkind: Pod\nmetadata: [\n",
    "it is not rendered": "kind: Pod\nmetadata: {{ .Values.metadata }}\n",
}


@pytest.mark.parametrize("sentence", BROKEN_OBJECTS)
def test_a_broken_object_in_a_folder_is_not_taken_for_another_file(
    tmp_path: Path, sentence: str
) -> None:
    write(tmp_path, "a.yaml", BROKEN_OBJECTS[sentence])
    assert run(tmp_path).status == 2


def test_excluded_files_and_folders_are_not_read(tmp_path: Path) -> None:
    for name in ("a.yaml", "charts/web/b.yaml", "deep/templates/c.yaml", "deep/d.yaml"):
        write(tmp_path, name, BAD)

    def files(*patterns: str) -> list[str]:
        words = [word for pattern in patterns for word in ("--exclude", pattern)]
        lines = run("-R", tmp_path, *words).lines
        return [line.partition(":")[0].removeprefix(f"{tmp_path}/") for line in lines]

    assert len(files()) == 4
    assert files("charts/*", "templates/") == ["a.yaml", "deep/d.yaml"]
    assert files("deep/*.yaml", "charts") == ["a.yaml"]
    assert files("[ad].yaml", "b.*") == ["deep/templates/c.yaml"]
    assert run(tmp_path / "a.yaml", "--exclude", "a.yaml").output.startswith("0 objects")


def test_an_excluded_path_is_written_as_the_shell_completes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "repo/a.yaml", GOOD)
    write(tmp_path, "repo/charts/b.yaml", BAD)
    for pattern in ("./charts/", "repo/charts", "./repo/charts/*"):
        assert run("-R", "repo", "--exclude", pattern).lines == [], pattern
        assert run("-R", "./repo/", "--exclude", pattern).lines == [], pattern


def test_a_pipe_in_a_folder_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.yaml")
    assert run(tmp_path).lines == [f"{tmp_path}/a.yaml: unreadable: not a regular file"]


@pytest.mark.parametrize("name", ["", "below"])
def test_a_folder_that_cannot_be_read_is_reported(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a.yaml", GOOD)
    write(tmp_path, "below/a.yaml", GOOD)
    list_folder = os.scandir

    def refuse(path: str) -> object:
        if Path(path) == tmp_path / name:
            raise PermissionError(13, "Permission denied", path)
        return list_folder(path)

    # Root, which runs tests in containers, may read every folder.
    monkeypatch.setattr(os, "scandir", refuse)
    checked = run("-R", tmp_path)
    assert checked.status == 2
    folder = str(tmp_path / name)
    assert checked.lines == [f"{folder}: unreadable: permission denied"]


@pytest.mark.parametrize(
    "words", [("",), ("a.yaml", ""), ("a.yaml", "--policy", ""), (".", "--exclude", "")]
)
def test_an_empty_name_is_not_the_current_folder(words: tuple[str, ...]) -> None:
    checked = run(*words)
    assert checked.status == 2
    assert checked.output.endswith("a name is empty\n")


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", GOOD)
    (tmp_path / "loop").symlink_to(tmp_path)
    assert run("-R", tmp_path).status == 0


def test_a_file_that_is_named_twice_is_checked_once(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", BAD)
    assert len(run(path, path, tmp_path).lines) == 1


def test_a_file_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.symlink_to(path)
    assert run(path).lines == [f"{path}: unreadable: too many levels of symbolic links"]


def test_control_characters_in_names_are_escaped(tmp_path: Path) -> None:
    text = BAD.replace("name: p", r'name: "p\x1b[2J\nq"')
    checked = run(write(tmp_path, "a\x1b[2J.yaml", text))
    assert "\x1b" not in checked.output
    assert r"Pod team/p\x1b[2J\nq" in checked.output


def test_a_command_line_without_files_is_bad_usage() -> None:
    assert run().status == 2


def test_kinds_without_rules_are_only_counted(tmp_path: Path) -> None:
    text = "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: 5\n---\n" + BAD.replace(
        "v1", "other.io/v1"
    )
    checked = run(write(tmp_path, "a.yaml", text))
    assert (checked.status, checked.output) == (0, "2 objects checked: 0 violations, 0 warnings\n")


def test_objects_that_webhooks_never_review_are_not_checked(tmp_path: Path) -> None:
    assert run(write(tmp_path, "a.yaml", BAD.replace("team", "kube-system"))).status == 0


FORMS = {
    "a class that is a number": (
        "labels='{reprieve.dev/preemption-class: 4}'",
        pod(labels="{reprieve.dev/preemption-class: 4}"),
        [f'{LABEL}: Invalid value: "4": must be a string: "4" [form]'],
    ),
    "a class that is a number and out of range": (
        "",
        pod(labels="{reprieve.dev/preemption-class: 11}"),
        [f'{LABEL}: Invalid value: "11": must be a string [form]', REFUSED],
    ),
    "a field named annotation": (
        "",
        pod(annotation="{a: b}"),
        [
            (
                "metadata.annotation: Forbidden: the field is annotations: "
                "the API server drops one that it does not know [form]"
            )
        ],
    ),
    "a priority that is a string": (
        "",
        pod() + "spec: {priority: '5'}",
        ['spec.priority: Invalid value: "5": must be a whole number, without quotes [form]'],
    ),
    "a class below 0, and one that is a boolean": (
        "",
        pod(labels="{reprieve.dev/preemption-class: -1}")
        + "---\n"
        + pod(labels="{reprieve.dev/preemption-class: true}"),
        [
            f'{LABEL}: Invalid value: "{text}": {detail}'
            for text in ("-1", "true")
            for detail in (
                "must be a string [form]",
                "must be between 0 and 10, in plain digits [preemption-class]",
            )
        ],
    ),
    "a class that YAML reads as an octal number": (
        "",
        pod(labels="{reprieve.dev/preemption-class: 010}"),
        [
            (
                f'{LABEL}: Invalid value: "010": must be a string: '
                "without quotes it is read as 8 [form]"
            ),
            (
                f'{LABEL}: Invalid value: "010": must be between 0 and 10, in plain digits '
                "[preemption-class]"
            ),
        ],
    ),
    "a name that YAML reads as a boolean": (
        "",
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: yes}\n---\n"
            "apiVersion: v1\nkind: Pod\nmetadata: {name: true}\n"
        ),
        [
            (
                'metadata.name: Invalid value: "yes": must be a string: '
                "without quotes it is read as true [form]"
            ),
            'metadata.name: Invalid value: "true": must be a string: "true" [form]',
        ],
    ),
    "fields that cannot be decoded, and a class out of range": (
        "",
        pod(labels='{reprieve.dev/preemption-class: "11"}')
        + "spec:\n  priority: high\n  nodeSelector: {a: b, c: 5}\n"
        + "  containers:\n  - 5\n  - {name: b, resources: {requests: {cpu: [1], memory: 1Gi}}}\n",
        [
            REFUSED,
            'spec.priority: Invalid value: "high": must be a whole number, not a string [form]',
            'spec.nodeSelector[c]: Invalid value: "5": must be a string: "5" [form]',
            'spec.containers[0]: Invalid value: "5": must be a mapping, not a whole number [form]',
            (
                "spec.containers[1].resources.requests[cpu]: Invalid value: "
                "must be a quantity, not a list [form]"
            ),
        ],
    ),
    "a setting without quotes, and one that is unknown": (
        "",
        (
            "apiVersion: v1\nkind: ConfigMap\n"
            "metadata: {name: reprieve-policy, namespace: reprieve-system}\n"
            "data:\n  maxVictims: 3\n  gangGates: 'true'\n"
        ),
        [
            'data[maxVictims]: Invalid value: "3": must be a string: "3" [form]',
            (
                'data[gangGates]: Unsupported value: "gangGates": did you mean "gangGate"? '
                "[policy-config]"
            ),
        ],
    ),
    "metadata that is a list": (
        "",
        "apiVersion: v1\nkind: Pod\nmetadata: []",
        ["metadata: Invalid value: must be a mapping, not a list [form]"],
    ),
    "fields that are null": (
        "",
        pod(labels="{a: null}", annotations="null") + "spec: {containers: [{name: null}]}",
        [],
    ),
}


@pytest.mark.parametrize("sentence", FORMS)
def test_what_the_api_server_would_not_decode_is_a_violation(tmp_path: Path, sentence: str) -> None:
    _, text, findings = FORMS[sentence]
    lines = run(write(tmp_path, "a.yaml", text)).lines
    assert [line.partition("error: ")[2].partition(": ")[2] for line in lines] == findings


CLASSES = """\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: low}
value: 100
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 9000
"""
DEFENDED = (
    pod(annotations="{reprieve.dev/preemption-priority-class: high}")
    + "spec: {priorityClassName: %s}\n"
)
DEFENCE = "metadata.annotations[reprieve.dev/preemption-priority-class]"


def test_a_reference_is_resolved_among_the_files_of_the_run(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", DEFENDED % "low" + "---\n" + CLASSES)
    (line,) = run(path).lines
    assert line.endswith(
        f"error: Pod team/p: {DEFENCE}: Forbidden: its value 9000 is above 100, "
        "the highest allowed here [preemption-priority]"
    )


def test_an_unknown_object_is_a_warning_on_each_line_that_names_it(tmp_path: Path) -> None:
    checked = run(write(tmp_path, "a.yaml", DEFENDED % "low"))
    assert checked.status == 0
    unknown = (
        'not evaluated without PriorityClass "low" and PriorityClass "high" (see --policy) '
        "[preemption-priority]"
    )
    assert [line.partition("Pod team/p: ")[2] for line in checked.lines] == [
        f"{DEFENCE}: {unknown}",
        f"spec.priorityClassName: {unknown}",
    ]


def test_a_reference_without_a_name_names_no_unknown_object(tmp_path: Path) -> None:
    text = (DEFENDED % "low").replace("class: high", "class: ''")
    assert run(write(tmp_path, "a.yaml", text)).output.count('PriorityClass ""') == 0


def test_a_policy_folder_has_the_objects_of_the_cluster(tmp_path: Path) -> None:
    write(tmp_path, "policy/deep/classes.yaml", CLASSES + "---\n" + BAD)
    path = write(tmp_path, "a.yaml", DEFENDED % "low")
    checked = run("--policy", tmp_path / "policy", path)
    assert checked.status == 1
    assert "its value 9000 is above 100" in checked.output
    assert "not evaluated" not in checked.output
    assert len(checked.lines) == 1


POLICY = (
    "apiVersion: v1\nkind: ConfigMap\n"
    "metadata: {name: reprieve-policy, namespace: reprieve-system}\ndata:\n"
)


def test_a_policy_that_cannot_be_parsed_is_a_violation_on_its_own_line(tmp_path: Path) -> None:
    text = POLICY + "  ceiling: soon\n"
    path = write(tmp_path, "policy/map.yaml", text)
    checked = run(write(tmp_path, "a.yaml", GOOD), "--policy", path.parent)
    assert checked.status == 1
    assert checked.lines[0].startswith(
        f"{path}:5: error: ConfigMap reprieve-system/reprieve-policy: data[ceiling]: "
    )


def test_the_settings_of_the_policy_apply(tmp_path: Path) -> None:
    text = POLICY + "  maxPreemptionPriorityLift: '9000'\n"
    write(tmp_path, "policy/map.yaml", text)
    path = write(tmp_path, "a.yaml", DEFENDED % "low" + "---\n" + CLASSES)
    assert run(path).status == 1
    assert run(path, "--policy", tmp_path / "policy").status == 0


NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: team\n  annotations: {%s}\n---\n"
CLASS_8 = pod(
    labels='{reprieve.dev/preemption-class: "8"}',
    annotations="{reprieve.dev/checkpoint-hint: 'http://:80/x'}",
)


def test_the_policy_of_a_namespace_in_the_same_run_applies(tmp_path: Path) -> None:
    def status(annotations: str) -> int:
        return run("--strict", write(tmp_path, "a.yaml", NAMESPACE % annotations + CLASS_8)).status

    assert status("reprieve.dev/allowed-preemption-classes: 0-9") == 0
    assert status("reprieve.dev/allowed-preemption-classes: 0-6") == 1


@pytest.mark.parametrize("order", [("0-9", "0-6"), ("0-6", "0-9")])
def test_an_object_must_pass_under_each_definition_of_its_namespace(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    first, second = (
        NAMESPACE % f"reprieve.dev/allowed-preemption-classes: {allowed}" for allowed in order
    )
    path = write(tmp_path, "a.yaml", first + second + CLASS_8)
    checked = run(path)
    assert checked.status == 1
    assert checked.lines == [
        (
            f"{path}:7: warning: Namespace team: defined differently in {path}:1: "
            "its objects must pass under both"
        ),
        (
            f'{path}:18: error: Pod team/p: {LABEL}: Unsupported value: "8": '
            "classes allowed in this namespace: 0-6 [preemption-class]"
        ),
    ]
    same = write(tmp_path, "a.yaml", first + first + GOOD)
    assert run("--strict", same).status == 0


def test_what_one_definition_of_a_namespace_warns_of_and_another_refuses_is_told_once(
    tmp_path: Path,
) -> None:
    modes = "".join(NAMESPACE % f"reprieve.dev/enforcement: {mode}" for mode in ("warn", "enforce"))
    checked = run(write(tmp_path, "a.yaml", modes + BAD))
    assert [line.partition("error: ")[2] for line in checked.lines] == [
        "",
        f"Pod team/p: {REFUSED}",
    ]


def test_another_definition_of_a_priority_class_causes_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", CLASSES + "---\n" + CLASSES.replace("9000", "8000"))
    assert run(path).lines == [
        (
            f"{path}:16: warning: PriorityClass high: defined differently in {path}:6: "
            "the last definition counts"
        )
    ]


def test_an_unknown_namespace_causes_no_violation(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", CLASS_8)
    checked = run(path)
    assert checked.status == 0
    assert checked.lines[0].endswith(
        f'warning: Pod team/p: {LABEL}: not evaluated without Namespace "team" (see --policy) '
        "[preemption-class]"
    )
    assert run("--strict", path).status == 1
    assert (
        run(write(tmp_path, "b.yaml", CLASS_8.replace("  namespace: team\n", ""))).output.count(
            "without its Namespace"
        )
        == 1
    )


def test_an_object_without_a_namespace_is_in_the_namespace_of_n(tmp_path: Path) -> None:
    text = NAMESPACE % "reprieve.dev/allowed-preemption-classes: 0-6" + CLASS_8.replace(
        "  namespace: team\n", ""
    )
    assert run("-n", "team", write(tmp_path, "a.yaml", text)).status == 1


def test_the_enforcement_of_a_namespace_applies(tmp_path: Path) -> None:
    def result(enforcement: str) -> tuple[int, int]:
        checked = run(
            write(
                tmp_path, "a.yaml", NAMESPACE % f"reprieve.dev/enforcement: '{enforcement}'" + BAD
            )
        )
        return checked.status, len(checked.lines)

    assert result("enforce") == (1, 1)
    assert result("warn") == (0, 1)
    assert result("off") == (0, 0)


def test_a_pod_has_the_priority_of_its_priority_class(tmp_path: Path) -> None:
    text = DEFENDED % "high" + "---\n" + CLASSES
    assert run(write(tmp_path, "a.yaml", text)).status == 0


def test_the_clusters_default_priority_class_counts(tmp_path: Path) -> None:
    text = DEFENDED.replace("spec: {priorityClassName: %s}\n", "") + "---\n" + CLASSES
    assert "the cluster's default PriorityClass" in run(write(tmp_path, "a.yaml", text)).output
    known = text + "globalDefault: true\n"
    assert (
        run(
            "--strict", "-R", write(tmp_path, "b.yaml", known), "--policy", tmp_path / "none"
        ).status
        == 2
    )
    assert "not evaluated" not in run(write(tmp_path, "b.yaml", known)).output


JOBSET = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: set, namespace: team}
spec:
  replicatedJobs:
  - name: leader
    template: {spec: {template: {metadata: {labels: {reprieve.dev/preemption-class: "4"}}}}}
  - name: worker
    template:
      spec:
        template:
          metadata:
            labels:
              reprieve.dev/preemption-class: 11
"""


def test_each_pod_template_of_another_projects_kind_is_checked(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", JOBSET)
    field = f"spec.replicatedJobs[1].template.spec.template.{LABEL}"
    prefix = f"{path}:14: error: JobSet team/set: {field}: Invalid value: "
    assert [line.removeprefix(prefix) for line in run(path).lines] == [
        '"11": must be a string [form]',
        '"11": must be between 0 and 10, in plain digits [preemption-class]',
    ]


def test_a_job_that_never_fits_into_its_quota_causes_a_warning(tmp_path: Path) -> None:
    quota = (
        "apiVersion: scheduling.sigs.k8s.io/v1alpha1\nkind: ElasticQuota\n"
        "metadata: {name: team, namespace: team}\nspec: {min: {cpu: 1}, max: {cpu: 2}}\n---\n"
    )
    text = pod(labels='{quota.scheduling.koordinator.sh/preemptible: "true"}') + (
        "spec:\n  containers:\n  - {name: main, resources: {requests: {cpu: 3}}}\n"
    )
    path = write(tmp_path, "a.yaml", quota + text)
    assert any(line.endswith("[quota-fit]") for line in run(path).lines)
    assert run("--strict", path).status == 1


QUOTA = (
    "apiVersion: scheduling.sigs.k8s.io/v1alpha1\nkind: ElasticQuota\n"
    "metadata: {name: team, namespace: team}\nspec: {min: {cpu: 4}, max: {cpu: 8}}\n"
)


def member(name: str, job: str, cpu: int = 3, *, preemptible: str = "false", node: str = "") -> str:
    """Return a bare pod of a job, which a quota counts."""
    labels = (
        f'{{quota.scheduling.koordinator.sh/preemptible: "{preemptible}", '
        f"pod-group.scheduling.sigs.k8s.io: {job}}}"
    )
    place = f"  nodeName: {node}\n" if node else ""
    spec = f"  containers:\n  - {{name: main, resources: {{requests: {{cpu: {cpu}}}}}}}\n"
    return pod(name, labels=labels) + "spec:\n" + place + spec


def quota_findings(tmp_path: Path, *documents: str) -> list[str]:
    path = write(tmp_path, "a.yaml", "---\n".join([QUOTA, *documents]))
    return [line for line in run(path).lines if line.endswith("[quota-fit]")]


def test_bare_pods_of_one_job_count_together_against_their_quota(tmp_path: Path) -> None:
    told = quota_findings(tmp_path, member("a", "j"), member("b", "j"))
    assert len(told) == 2
    assert all("its job: cpu 6 over min 4 of quota team" in line for line in told)
    assert not quota_findings(tmp_path, member("a", "j"), member("b", "k"))


def test_of_two_definitions_of_a_pod_its_job_counts_the_last_and_each_counts_for_itself(
    tmp_path: Path,
) -> None:
    twice = (member("a", "j", 2), member("a", "j", 3), member("b", "j", 2))
    told = [line.partition("cpu ")[2][:1] for line in quota_findings(tmp_path, *twice)]
    assert told == ["5", "5"], "the first definition of a, and b, fit: 2 + 2"


def test_pods_of_a_job_that_its_quota_counts_otherwise_are_not_counted_together(
    tmp_path: Path,
) -> None:
    assert not quota_findings(tmp_path, member("a", "j"), member("b", "j", preemptible="true"))
    assert quota_findings(tmp_path, member("a", "j"), member("b", "j", node="n1"))


def test_the_pods_of_a_job_are_counted_once_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = 0
    job_pod_of, requests_of = job_requests.job_pod_of, job_requests.requests_of

    def count_pod(*args: Any) -> JobPod:
        nonlocal counted
        counted += 1
        return job_pod_of(*args)

    def count_others(own: JobPod, others: Iterable[JobPod]) -> JobRequests:
        nonlocal counted
        pods = list(others)
        counted += len(pods)
        return requests_of(own, pods)

    monkeypatch.setattr(job_requests, "job_pod_of", count_pod)
    monkeypatch.setattr(job_requests, "requests_of", count_others)
    few = quota_findings(tmp_path, *(member(f"p{number}", "j") for number in range(10)))
    counted_few, counted = counted, 0
    many = quota_findings(tmp_path, *(member(f"p{number}", "j") for number in range(40)))
    assert len(many) == 4 * len(few) > 0
    assert 0 < counted <= 4 * counted_few


def test_a_file_that_is_also_in_the_policy_folder_is_checked_once(tmp_path: Path) -> None:
    write(tmp_path, "policy/all.yaml", CLASSES + "---\n" + BAD)
    document = run(tmp_path / "policy", "--policy", tmp_path / "policy", "-o", "json").document
    assert document["summary"] == {
        "files": 1,
        "objects": 3,
        "violations": 1,
        "warnings": 0,
        "unreadable": 0,
        "skipped": 0,
    }


def test_json_output_is_one_document(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", f"{BAD}---\na: [\n---\n{CLASS_8}")
    document = run(path, "-o", "json").document
    assert document["version"] == 1
    assert document["summary"] == {
        "files": 1,
        "objects": 2,
        "violations": 1,
        "warnings": 1,
        "unreadable": 1,
        "skipped": 0,
    }
    assert document["findings"][0] == {
        "level": "violation",
        "file": str(path),
        "line": 6,
        "object": {"kind": "Pod", "namespace": "team", "name": "p"},
        "path": LABEL,
        "rule": "preemption-class",
        "message": 'Invalid value: "11": must be between 0 and 10, in plain digits',
    }
    assert [finding["level"] for finding in document["findings"]] == [
        "violation",
        "unreadable",
        "warning",
    ]


def test_json_output_without_findings_is_a_document_too(tmp_path: Path) -> None:
    assert run(write(tmp_path, "a.yaml", ""), "-o", "json").document["findings"] == []


def test_github_commands_are_escaped(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b:c%.yaml", BAD.replace('"11"', r'"1%1\n::error::x"'))
    (line,) = run(path, "-o", "github").lines
    shown = str(path).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
    assert line.startswith(
        f"::error file={shown},line=6,title=preemption-class::Pod team/p: {LABEL}: Invalid value: "
    )
    assert r'"1%251\n::error::x"' in line


def test_a_github_command_for_a_missing_file_has_no_line(tmp_path: Path) -> None:
    (line,) = run(tmp_path / "none", "-o", "github").lines
    assert line == f"::error file={tmp_path}/none,title=unreadable::no such file or directory"


def test_colours_appear_on_terminals_only(tmp_path: Path) -> None:
    assert "\x1b" not in run(write(tmp_path, "a.yaml", BAD)).output


def test_json_output_is_valid_for_names_that_are_not_unicode(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "a.json",
        '{"apiVersion":"v1","kind":"Pod","metadata":'
        '{"name":"\\ud800","labels":{"reprieve.dev/preemption-class":"\\udfff"}}}',
    )
    for output in ("json", "sarif"):
        assert json.loads(run(path, "-o", output).output)
    assert run(path).status == 1
