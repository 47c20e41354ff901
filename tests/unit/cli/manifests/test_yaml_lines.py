"""YAML has the meaning that it has for the API server; unreadable YAML has a line."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from reprieve_cli.manifests import field_paths, yaml_lines
from reprieve_cli.manifests.sources import Unreadable

SCALARS: dict[str, object] = {
    "text": "text",
    '"4"': "4",
    "'4'": "4",
    "4": 4,
    "-4": -4,
    "010": 8,
    "0x1F": 31,
    "-0b11": -3,
    "1_000": 1000,
    "0": 0,
    "1.5": 1.5,
    "1e3": 1000.0,
    ".5": 0.5,
    "12:30": "12:30",
    "2020-01-01": "2020-01-01",
    "1.2.3": "1.2.3",
    "+.inf": "+.inf",
    "9" * 70: "9" * 70,
    "y": True,
    "on": True,
    "Off": False,
    "~": None,
    "": None,
    "null": None,
    "!!str 5": "5",
    '!!int "5"': 5,
    "!custom 5": "5",
    "<<": "<<",
}

UNREADABLE = {
    "a list that does not end": ("a: [1,\n", "did not find expected node content", 1),
    "a tab as indentation": (
        "a:\n\tb: 1\n",
        "a tab or another character that cannot start a value",
        1,
    ),
    "a colon too many": ("a: b: c", "mapping values are not allowed in this context", 0),
    "an alias of nothing": ("a: *b", "found undefined alias", 0),
    "the same anchor twice": (
        "a: &x 1\nb: &x 2",
        "an anchor is defined twice in one document",
        1,
    ),
    "a key that stands twice": (
        "a: 1\nb:\n  c: 1\n  c: 2",
        'the key "c" appears twice in one mapping',
        3,
    ),
    "an anchor in itself": ("a: &x [*x]", "its aliases nest too deeply, or lead to themselves", 0),
    "a mapping in itself": (
        "a: &x {b: *x}",
        "its aliases nest too deeply, or lead to themselves",
        0,
    ),
    "a template of another language": (
        "a: 1\n{{ .Values.x }}: 1",
        "a key that is not a string (unquoted braces of a template?)",
        1,
    ),
    "a mapping as a key": (
        "? {a: 1}\n: 1",
        "a key that is not a string (unquoted braces of a template?)",
        0,
    ),
    "nothing as a key": ("~: 1", "a key that is not a string (unquoted braces of a template?)", 0),
    "a merge of a text": ("a: 1\n<<: text", "a merge key whose value is not a mapping", 1),
    "a control character": ("a: 1\nb: \x01", "a control character", 1),
    "a null character": ("a: \x00", "a control character", 0),
    "lists in lists in lists": ("- " * 100_000 + "a", "nested deeper than 150 levels", 0),
    "brackets in brackets": ("[" * 100_000, "nested deeper than 150 levels", 0),
    "braces in braces": ("{a: " * 100_000, "nested deeper than 150 levels", 0),
}

BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize("text", SCALARS)
def test_a_scalar_has_the_value_that_the_api_server_receives(text: str) -> None:
    value = yaml_lines.read(f"a: {text}")["a"]
    assert value == SCALARS[text]
    assert type(value) is type(SCALARS[text])


@pytest.mark.parametrize("sentence", UNREADABLE)
def test_an_unreadable_text_has_a_reason_and_a_line(sentence: str) -> None:
    text, reason, line = UNREADABLE[sentence]
    with pytest.raises(Unreadable) as error:
        yaml_lines.read(text)
    assert (error.value.reason, error.value.line) == (reason, line)


@pytest.mark.parametrize(
    "limit", [10_000, pytest.param(yaml_lines.MAX_VALUES, marks=pytest.mark.slow)]
)
def test_aliases_that_would_fill_all_memory_are_refused(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml_lines, "MAX_VALUES", limit)
    with pytest.raises(Unreadable, match="its aliases would fill all memory"):
        yaml_lines.read(BOMB)


def test_keys_are_strings_as_in_json() -> None:
    assert yaml_lines.read("1: a\ntrue: b\n1.5: c\nd: e") == {
        "1": "a",
        "true": "b",
        "1.5": "c",
        "d": "e",
    }


def test_merge_keys_add_the_keys_that_a_mapping_lacks() -> None:
    document = yaml_lines.read(
        "base: &b {v: 1, w: 2}\none: {<<: *b, w: 3}\ntwo: {<<: [*b, {v: 9, z: 4}]}"
    )
    assert document["one"] == {"v": 1, "w": 3}
    assert document["two"] == {"v": 1, "w": 2, "z": 4}


def test_aliases_are_followed() -> None:
    assert yaml_lines.read("a: &x {b: 1}\nc: [*x, *x]") == {
        "a": {"b": 1},
        "c": [{"b": 1}, {"b": 1}],
    }


SPLITS: dict[str, tuple[str, list[int]]] = {
    "a single document without a separator": ("a: 1\n", [1]),
    "two documents": ("a: 1\n---\nb: 1\n", [1, 2]),
    "a mark at the start": ("---\na: 1\n---\nb: 1\n", [1, 3]),
    "empty documents between": ("---\n---\n\n---\n# nothing\n---\na: 1\n", [6]),
    "an empty text": ("", []),
    "comments only": ("# a\n\n  # b\n", []),
    "a directive": ("%YAML 1.2\n---\na: 1\n", [2]),
    "documents with an end marker": ("a: 1\n...\n---\nb: 1\n...\n", [1, 3]),
    "line ends of Windows": ("a: 1\r\n---\r\nb: 1\r\n", [1, 2]),
    "three dashes inside a text": ("a: |\n  ---\n  b\n", [1]),
    "a comment behind the mark": ("--- # first\na: 1\n", [1]),
    "dashes that are not a separator": ("---a: 1\n", [1]),
}


@pytest.mark.parametrize("sentence", SPLITS)
def test_documents_are_split_where_they_begin(sentence: str) -> None:
    text, lines = SPLITS[sentence]
    assert [line for line, _ in yaml_lines.split(text)] == lines


def test_many_document_ends_are_split_quickly() -> None:
    assert len(list(yaml_lines.split("...\n\n\n\n" * 2000 + "x"))) == 1


SOURCE = """\
base: &labels
  reprieve.dev/preemption-class: "11"
spec:
  template:
    metadata:
      labels:
        <<: *labels
        a: b
  containers:
  - name: one
  - name: two
    ports: []
"""
LINES = {
    "spec": 2,
    "spec.template.metadata.labels[a]": 7,
    "spec.template.metadata.labels[reprieve.dev/preemption-class]": 1,
    "spec.template.metadata.labels[not/there]": 5,
    "spec.template.metadata.annotations[a]": 4,
    "spec.containers[1]": 10,
    "spec.containers[1].ports": 11,
    "spec.containers[7]": 8,
    "spec.containers[word]": 8,
    "spec.containers[0].name.deeper": 9,
    "nowhere.at.all": 0,
    "": 0,
}


@pytest.mark.parametrize("path", LINES)
def test_a_path_leads_to_the_line_of_its_last_key_that_exists(path: str) -> None:
    assert yaml_lines.line_of(SOURCE, field_paths.parse(path)) == LINES[path]


def test_a_path_into_a_list_of_merges_is_found() -> None:
    text = "a: &a {x: 1}\nb: &b {y: 1}\nc:\n  <<: [*a, *b]\n"
    assert yaml_lines.line_of(text, field_paths.parse("c.y")) == 1


class CountedKeys(list[Any]):
    """The keys of a mapping, and how often they were all looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        self.looks += 1
        return super().__iter__()


def test_the_keys_of_a_mapping_are_read_once_however_many_are_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = [f"k{number}" for number in range(50)]
    text = "labels:\n" + "".join(f"  {key}: 0{number}\n" for number, key in enumerate(keys))
    root = yaml_lines.compose(text)
    labels = root.value[0][1]
    labels.value = counted = CountedKeys(labels.value)
    monkeypatch.setattr(yaml_lines, "compose", lambda _: root)
    for number, key in enumerate(keys):
        assert yaml_lines.line_of(text, ("labels", key)) == number + 1
        assert yaml_lines.scalar_at(text, ("labels", key)) == f"0{number}"
    assert counted.looks <= 2, "one for the keys, one for merge keys"


PATHS: dict[str, tuple[Any, ...]] = {
    "spec.template.metadata.labels[a.b/c-d]": ("spec", "template", "metadata", "labels", "a.b/c-d"),
    "metadata.annotations[a/b].timestamp": ("metadata", "annotations", "a/b", "timestamp"),
    "spec.containers[0].ports[12]": ("spec", "containers", 0, "ports", 12),
    "": (),
}


@pytest.mark.parametrize("path", PATHS)
def test_paths_are_read_as_violations_write_them(path: str) -> None:
    assert field_paths.parse(path) == PATHS[path]


def test_the_path_of_a_warning_is_its_beginning() -> None:
    assert (
        field_paths.path_in("metadata.labels[a.b/c]: has no effect: at all")
        == "metadata.labels[a.b/c]"
    )
    assert field_paths.path_in("the cluster: is fine") == ""


def test_without_the_c_library_it_reads_the_same() -> None:
    script = (
        "import yaml; yaml.__with_libyaml__ = False\n"
        "from reprieve_cli.manifests import yaml_lines\n"
        f"print(yaml_lines.read({SOURCE!r}))\n"
        f"print(yaml_lines.line_of({SOURCE!r}, ('spec', 'containers', 1, 'ports')))"
    )
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.splitlines() == [str(yaml_lines.read(SOURCE)), "11"]
