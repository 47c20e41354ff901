"""The list of commands, without the imports that the commands need.

A command is a module with a `command`. It is imported when it runs: without this, `reprieve --help`
would load an HTTP client that it does not use. To add a command or a group of commands, add a line
to `COMMANDS`.
"""

import contextlib
import importlib
import io
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

from reprieve_cli.output.terminal import NO_SPACE, echo, echo_part

_EXIT_INTERRUPTED = 128 + 2
"""The status that a shell reports for a program that SIGINT ended."""
_EXIT_SOFTWARE = 70
"""An internal error (`EX_SOFTWARE` of `sysexits.h`)."""
_EXIT_NO_OUTPUT = 74
"""The output cannot be written (`EX_IOERR` of `sysexits.h`)."""


class CommandEntry(NamedTuple):
    """The module of a command, and its sentence in the list."""

    module: str
    help: str


COMMANDS: Mapping[str, CommandEntry] = {
    "check": CommandEntry(
        "reprieve_cli.commands.check",
        "Check manifests against the rules of admission, without a cluster.",
    ),
    "audit": CommandEntry(
        "reprieve_cli.commands.audit", "List the objects of a cluster that violate a rule."
    ),
    "evict": CommandEntry(
        "reprieve_cli.commands.evict", "Evict pods softly: they may save a checkpoint first."
    ),
    "cancel": CommandEntry("reprieve_cli.commands.cancel", "Cancel soft evictions: the pods stay."),
    "reclaim": CommandEntry(
        "reprieve_cli.commands.reclaim", "Evict the pods of other namespaces from a lent node."
    ),
    "explain": CommandEntry(
        "reprieve_cli.commands.explain", "Show how a pod would be preempted, and at what cost."
    ),
    "simulate": CommandEntry(
        "reprieve_cli.commands.simulate", "Show which pods a pod would preempt, and why not others."
    ),
    "status": CommandEntry(
        "reprieve_cli.commands.status",
        "Show whether Reprieve works in a cluster, and what to do if not.",
    ),
    "cleanup": CommandEntry(
        "reprieve_cli.commands.cleanup", "Remove all that Reprieve wrote, before you uninstall it."
    ),
    "watch": CommandEntry("reprieve_cli.commands.watch", "Show victims and their progress."),
    "render": CommandEntry(
        "reprieve_cli.commands.render",
        "Write the rules as admission policies of the API server.",
    ),
}


class LazyGroup(click.Group):
    """A group that imports a command when it runs."""

    def __init__(self, *args: Any, entries: Mapping[str, CommandEntry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of the table."""
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import the command."""
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = importlib.import_module(entry.module).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the list without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self._entries.items()])


@click.command(
    cls=LazyGroup, entries=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="reprieve", message="reprieve %(version)s")
@click.pass_context
def reprieve(ctx: click.Context) -> None:
    """Preemption with notice for Kubernetes: check manifests and clusters, evict pods softly."""
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main() -> NoReturn:
    """Run as `reprieve`, or as a kubectl plugin if the program's file name begins with `kubectl-`.

    Status 1 is reserved for the commands' own results: without this, an interrupted check would
    look like one that found a violation.
    """
    if sys.stderr is None:  # Closed by the caller.
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end
    is_plugin = Path(sys.argv[0]).name.startswith("kubectl-")
    try:
        sys.exit(
            reprieve.main(
                prog_name="kubectl reprieve" if is_plugin else "reprieve", standalone_mode=False
            )
        )
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        echo_part(shown.getvalue(), err=True)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(_EXIT_INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - an internal error
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            _exit_without_output(error)
        echo_part(traceback.format_exc(), err=True)
        sys.exit(_EXIT_SOFTWARE)


def _exit_without_output(error: OSError) -> NoReturn:
    """Say why standard output cannot be written, and exit.

    Without the replacement of standard output, Python would fail once more to write the rest of it.
    """
    with contextlib.suppress(OSError):  # Standard error may be full, too.
        echo(f"Error: cannot write the output: {str(error.strerror).lower()}", err=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(_EXIT_NO_OUTPUT)
