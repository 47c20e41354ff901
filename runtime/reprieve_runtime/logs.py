"""Logs with constant messages and variable fields: JSON in a cluster, plain text elsewhere."""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial

FORMATS = ("json", "text")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """`12:00:01 INFO message key=value`, for a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        time = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        pairs = "".join(f" {key}={value}" for key, value in _fields(record).items())
        trace = "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        return f"{time} {record.levelname:<7} {record.getMessage()}{pairs}{trace}"


def configure(log_format: str, log_level: str, **fields: object) -> None:
    """Send all logs to standard error in one of `FORMATS`; `fields` are in each line.

    Raises `ValueError` for an unknown format or level.
    """
    if log_format not in FORMATS:
        raise ValueError(f"log format must be one of {', '.join(FORMATS)}, not {log_format!r}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    if fields:
        handler.addFilter(partial(_add, fields))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(log_level.upper())


def _add(fields: Mapping[str, object], record: logging.LogRecord) -> bool:
    for key, value in fields.items():
        setattr(record, key, value)
    return True


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}
