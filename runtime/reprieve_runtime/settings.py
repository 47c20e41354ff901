"""Settings of a program: one frozen dataclass, from flags, environment, a file and defaults.

Flags take precedence, then the environment, then the file. No other module reads the environment.
A program with unreadable settings reports all errors at once and exits with status 2, before it
does anything else.
"""

import argparse
import json
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn, TypeVar

S = TypeVar("S")

ENVIRONMENT_PREFIX = "REPRIEVE_"
_BAD_USAGE = 2
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def setting(default: Any, *, help: str) -> Any:  # noqa: A002 - what argparse calls it
    """Declare a field with its default and one sentence for `--help`, units included."""
    return field(default=default, metadata={"help": help})


def load(
    settings_type: type[S],
    *,
    program: str,
    description: str,
    argv: Sequence[str],
    environ: Mapping[str, str],
) -> S:
    """Return the settings; `argv` is without the program's name.

    Exits with status 2 and all errors if a setting is unreadable.
    """
    declared = {item.name: item for item in fields(settings_type)}  # type: ignore[arg-type]
    readers = {
        name: _reader(annotation)
        for name, annotation in typing.get_type_hints(settings_type).items()
    }
    given = _parse_flags(declared, program, description, argv)
    texts: dict[str, tuple[str, object]] = {}
    errors: list[str] = []
    for name, value in _read_file(given.pop("config"), declared, errors).items():
        texts[name] = (f"{name} in the file", value)
    for name in declared:
        variable = ENVIRONMENT_PREFIX + name.upper()
        if variable in environ:
            texts[name] = (variable, environ[variable])
        if given[name] is not None:
            texts[name] = (_flag(name), given[name])
    values = {
        name: _read(source, text, readers[name], errors) for name, (source, text) in texts.items()
    }
    if errors:
        exit_with_errors(program, errors)
    return settings_type(**values)


def exit_with_errors(program: str, errors: Iterable[str]) -> NoReturn:
    """Write all errors to standard error, and exit with status 2."""
    sys.stderr.write("".join(f"{program}: {error}\n" for error in errors))
    raise SystemExit(_BAD_USAGE)


def _parse_flags(
    declared: Mapping[str, "Field[Any]"], program: str, description: str, argv: Sequence[str]
) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        prog=program,
        description=description,
        epilog=(
            "Every flag is also read from the environment: "
            f"--log-level as {ENVIRONMENT_PREFIX}LOG_LEVEL."
        ),
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{program} {version('reprieve')}")
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a JSON object of settings; flags and environment take precedence",
    )
    for name, item in declared.items():
        default_text = (
            ""
            if item.default in (None, MISSING)
            else f" (default: {_format_default(item.default)})"
        )
        parser.add_argument(
            _flag(name),
            dest=name,
            metavar="VALUE",
            help=item.metadata.get("help", "") + default_text,
        )
    return vars(parser.parse_args(argv))


def _read_file(
    path: str | None, declared: Mapping[str, object], errors: list[str]
) -> dict[str, object]:
    if path is None:
        return {}
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        errors.append(f"--config {path}: {error}")
        return {}
    if not isinstance(document, dict):
        errors.append(f"--config {path}: must be a JSON object")
        return {}
    errors.extend(
        f"--config {path}: unknown setting {name!r}" for name in document if name not in declared
    )
    return {name: value for name, value in document.items() if name in declared}


def _read(source: str, value: object, reader: Callable[[str], object], errors: list[str]) -> object:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    try:
        return reader(text)
    except ValueError as error:
        errors.append(f"{source}: {error}")
        return None


def _reader(annotation: Any) -> Callable[[str], object]:
    """Return a parser for the type: str, int, float, bool, Path or tuple[str, ...], or `| None`."""
    if isinstance(annotation, types.UnionType):
        annotation = next(part for part in typing.get_args(annotation) if part is not type(None))
    if typing.get_origin(annotation) is tuple:
        return lambda text: tuple(part.strip() for part in text.split(",") if part.strip())
    return _READERS[annotation]


def _read_boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError(f'must be "true" or "false", not {text!r}')
    return _BOOLEANS[text.lower()]


def _read_integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"must be a whole number, not {text!r}") from None


def _read_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"must be a number, not {text!r}") from None


_READERS: Mapping[Any, Callable[[str], object]] = {
    str: str,
    int: _read_integer,
    float: _read_number,
    bool: _read_boolean,
    Path: Path,
}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _format_default(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
