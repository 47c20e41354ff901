"""Logs: messages are constant, variables are fields."""

import json
import logging
import sys

import pytest

from reprieve_runtime import logs
from reprieve_runtime.client.paths import object_path


def a_record(**fields: object) -> logging.LogRecord:
    return logging.makeLogRecord(
        {"msg": "victim hinted", "levelname": "INFO", "name": "x", "created": 0.0, **fields}
    )


def test_json_lines_carry_fields_beside_the_message() -> None:
    line = json.loads(logs.JsonFormatter().format(a_record(pod_uid="u")))
    assert line == {
        "time": "1970-01-01T00:00:00.000+00:00",
        "level": "info",
        "logger": "x",
        "message": "victim hinted",
        "pod_uid": "u",
    }


def test_text_lines_carry_fields_as_pairs() -> None:
    assert (
        logs.TextFormatter().format(a_record(pod_uid="u"))
        == "00:00:00.000 INFO    victim hinted pod_uid=u"
    )


def test_a_traceback_stays_inside_its_json_line() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        record = a_record(exc_info=sys.exc_info())
    assert "ValueError: no" in json.loads(logs.JsonFormatter().format(record))["exception"]


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="json, text"):
        logs.configure("xml", "info")


def test_names_in_paths_are_quoted() -> None:
    assert (
        object_path("pods", "a", "../../secrets", "status")
        == "/api/v1/namespaces/a/pods/..%2F..%2Fsecrets/status"
    )
