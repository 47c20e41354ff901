"""Settings of a program: one frozen dataclass, from flags, environment, a file and defaults.

Flags take precedence, then the environment, then the file. No other module reads the environment.
A program with unreadable settings reports all errors at once and exits with status 2, before it
does anything else.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, field, fields
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin

import click
from click.core import ParameterSource

S = TypeVar("S")

ENVIRONMENT_PREFIX = "REPRIEVE_"
_BAD_USAGE = 2


def setting(default: Any, *, help: str) -> Any:  # noqa: A002 - what click calls it
    """Declare a field with its default and one sentence for `--help`, units included."""
    return field(default=default, metadata={"help": help})


def load(settings_type: type[S], *, program: str, description: str, argv: Sequence[str]) -> S:
    """Return the settings; `argv` is without the program's name.

    Exits with status 2 and all errors if a setting is unreadable.
    """
    errors: list[str] = []
    command = click.Command(
        program,
        params=[
            click.Option(
                ["--config"],
                metavar="FILE",
                is_eager=True,
                expose_value=False,
                callback=_read_file,
                help="a JSON object of settings; flags and environment take precedence",
            ),
            *map(_SettingOption, fields(settings_type)),  # type: ignore[arg-type]
        ],
        help=description,
        epilog="Every flag is also read from the environment: "
        f"--log-level as {ENVIRONMENT_PREFIX}LOG_LEVEL.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    click.version_option(package_name="reprieve", message=f"{program} %(version)s")(command)
    try:
        values = command.make_context(program, list(argv), obj=errors).params
    except click.exceptions.Exit as end:  # --help and --version
        raise SystemExit(end.exit_code) from None
    except click.UsageError as error:
        errors.append(error.format_message())
    if errors:
        exit_with_errors(program, errors)
    return settings_type(**values)


def port_errors(**ports: int) -> list[str]:
    """Return an error for each port, by the name of its setting, that is none."""
    return [
        f"--{name.replace('_', '-')} must be between 0 and 65535"
        for name, port in ports.items()
        if not 0 <= port <= 65535
    ]


def exit_with_errors(program: str, errors: Iterable[str]) -> NoReturn:
    """Write all errors to standard error, and exit with status 2."""
    sys.stderr.write("".join(f"{program}: {error}\n" for error in errors))
    raise SystemExit(_BAD_USAGE)


def _split_list(value: str | tuple[str, ...]) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(part.strip() for part in parts if part.strip())


_CONVERTERS: Mapping[Any, Callable[[Any], object]] = {
    Path | None: Path,
    tuple[str, ...]: _split_list,
}
"""How to read the types that are not click's own."""


def _type_of(declared: "Field[Any]") -> Any:
    if get_origin(declared.type) is Literal:
        return click.Choice(get_args(declared.type))
    return _CONVERTERS.get(declared.type, declared.type)


class _SettingOption(click.Option):
    """The flag of one field; adds its error to the list `ctx.obj`, so that all are reported."""

    def __init__(self, declared: "Field[Any]") -> None:
        super().__init__(
            ["--" + declared.name.replace("_", "-")],
            type=_type_of(declared),
            default=declared.default,
            show_default=True,
            envvar=ENVIRONMENT_PREFIX + declared.name.upper(),
            metavar="VALUE",
            help=declared.metadata["help"],
        )

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:  # noqa: ARG002 - click's signature
        """Return the variable even if it is empty, which click would count as unset."""
        return os.environ.get(str(self.envvar))

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert the value; without this, the first error would hide the others."""
        try:
            return super().type_cast_value(ctx, value)
        except click.BadParameter as error:
            match ctx.get_parameter_source(str(self.name)):
                case ParameterSource.ENVIRONMENT:
                    origin = str(self.envvar)
                case ParameterSource.DEFAULT_MAP:
                    origin = f"{self.name} in the file"
                case _:
                    origin = self.opts[0]
            ctx.obj.append(f"{origin}: {error.message}")


def _read_file(ctx: click.Context, _config: click.Parameter, path: str | None) -> None:
    """Take the file's settings as defaults; their values become texts, like those of flags.

    `null` counts as unset.
    """
    if path is None:
        return
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        ctx.obj.append(f"--config {path}: {error}")
        return
    if not isinstance(document, dict):
        ctx.obj.append(f"--config {path}: must be a JSON object")
        return
    names = {option.name for option in ctx.command.params if isinstance(option, _SettingOption)}
    ctx.obj.extend(
        f"--config {path}: unknown setting {name!r}" for name in document if name not in names
    )
    ctx.default_map = {
        name: ",".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in document.items()
        if value is not None
    }
