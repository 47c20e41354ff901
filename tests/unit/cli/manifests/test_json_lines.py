"""JSON: consecutive documents are split, and each key has its line."""

import json

import pytest

from reprieve_cli.manifests import field_paths, json_lines
from reprieve_cli.manifests.sources import Unreadable

SOURCE = """\
{"kind": "List",
 "items": [
  {"a": "x:{}[],\\"y\\"",
   "b": {"c":
     1}
  },
  {"a": [1, {"d": null}, [true,
      -1.5e3]]}
 ]
}
"""
LINES = {
    "": 0,
    "kind": 0,
    "items": 1,
    "items[0]": 2,
    "items[0].a": 2,
    "items[0].b.c": 3,
    "items[1]": 6,
    "items[1].a[1].d": 6,
    "items[1].a[2][1]": 7,
    "items[1].nowhere": 6,
    "items[9].a": 1,
}


@pytest.mark.parametrize("path", LINES)
def test_a_path_leads_to_the_line_of_its_last_key_that_exists(path: str) -> None:
    assert json_lines.line_of(SOURCE, field_paths.parse(path)) == LINES[path]


def test_consecutive_documents_are_split() -> None:
    text = '\n{"a": 1}\n{"b":\n 2} {"c": 3}\n\n'
    assert list(json_lines.split(text)) == [(2, '{"a": 1}'), (3, '{"b":\n 2}'), (4, '{"c": 3}')]


def test_an_empty_text_has_no_document() -> None:
    assert list(json_lines.split(" \n\t ")) == []


UNREADABLE = {
    "a comma too many": (
        '{"a": 1,\n}',
        "not JSON: expecting property name enclosed in double quotes",
        1,
    ),
    "a document that does not end": ('{"a":\n', "not JSON: expecting value", 1),
    "a text behind the document": ('{"a": 1}\nx', "not JSON: expecting value", 1),
    "not a number": ('{"a": NaN}', "NaN is not a JSON number", 0),
    "an endless number": ('{"a": ' + "9" * 5000 + "}", "a number with too many digits", 0),
    "brackets in brackets": ("[" * 100_000, "nested too deeply", 0),
    "a key that stands twice": (
        '{"a": 1,\n"b": {"c": 1,\n"d": "c",\n"c": 2}}',
        'the key "c" appears twice in one object',
        3,
    ),
    "the same key in two objects, and twice in one": (
        '[{"a": 1},\n{"a": {"b": "a"},\n"a": 1}]',
        'the key "a" appears twice in one object',
        2,
    ),
}


@pytest.mark.parametrize("sentence", UNREADABLE)
def test_an_unreadable_text_has_a_reason_and_a_line(sentence: str) -> None:
    text, reason, line = UNREADABLE[sentence]
    with pytest.raises(Unreadable) as error:
        [json_lines.read(part) for _, part in json_lines.split(text)]
    assert (error.value.reason, error.value.line) == (reason, line)


def test_a_document_has_the_values_of_its_text() -> None:
    assert json_lines.read(SOURCE) == json.loads(SOURCE)
