"""A large file is read one document after the other: memory is that of the text and one tree."""

import json
import tracemalloc
from pathlib import Path

import pytest

from reprieve_cli.checking.inputs import InputReader
from reprieve_cli.manifests import json_lines
from reprieve_cli.output.finding import Summary
from reprieve_testing.check_command import pod

DOCUMENTS = 300
NO_OBJECT = "- one\n- two\n"
IN_YAML = "---\n" + pod(labels='{reprieve.dev/preemption-class: "4", a: b, c: d, e: f, g: h}')
IN_JSON = json.dumps(
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b", "c": "d"}}}
)


@pytest.mark.parametrize(
    ("name", "text"),
    [("all.yaml", IN_YAML * DOCUMENTS), ("all.json", f"{IN_JSON}\n" * DOCUMENTS)],
    ids=["yaml", "json"],
)
def test_the_parsed_documents_of_a_file_are_not_held_together(
    tmp_path: Path, name: str, text: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    found = InputReader("", (), Summary()).read([str(file)], recursive=False)
    tracemalloc.start()
    try:
        next(found)
        # Reading a file takes a buffer of the largest size for a moment.
        tracemalloc.reset_peak()
        read = 1 + sum(1 for _ in found)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert read == DOCUMENTS
    # The text, and the texts of its documents; each parsed tree is many times its text.
    assert most < 5 * len(text)


@pytest.mark.parametrize(("last", "skipped"), [(IN_YAML, 0), ("", 1)], ids=["object", "none"])
def test_a_file_of_a_folder_is_skipped_only_if_none_of_its_documents_is_an_object(
    tmp_path: Path, last: str, skipped: int
) -> None:
    (tmp_path / "all.yaml").write_text(f"{NO_OBJECT}---\n{NO_OBJECT}{last}")
    summary = Summary()
    found = list(InputReader("", (), summary).read([str(tmp_path)], recursive=False))
    assert (summary.files, summary.skipped) == (1, skipped)
    assert len(found) == (0 if skipped else 3)


def test_the_lines_of_a_long_list_take_few_bytes_for_each_field() -> None:
    item = {"name": "a", "labels": {"one": "b", "two": "c"}, "values": [1, 2, 3]}
    text = json.dumps({"items": [item] * DOCUMENTS}, indent=1)
    fields = DOCUMENTS * 8
    tracemalloc.start()
    try:
        line = json_lines.line_of(text, ("items", DOCUMENTS - 1, "values", 2))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert text.splitlines()[line].strip() == "3"
    assert most < 220 * fields
