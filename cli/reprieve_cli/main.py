"""The list of commands, and nothing that any of them needs.

A command is a module with a `command`, imported when it is asked for: without this, `reprieve --help` would wait for an
HTTP client that it does not use. To add one, add a line to `COMMANDS`; a group of commands is one line too.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

_EXIT_INTERRUPTED = 128 + 2
"""As a shell says of a program that SIGINT ended."""
_EXIT_SOFTWARE = 70
"""Of the program itself, as `sysexits.h` has it."""


class CommandEntry(NamedTuple):
    """Where a command is, and one sentence for the list."""

    module: str
    help: str


COMMANDS: Mapping[str, CommandEntry] = {
    "check": CommandEntry(
        "reprieve_cli.commands.check",
        "Check manifests, without a cluster, by the rules that would admit them.",
    ),
    "audit": CommandEntry(
        "reprieve_cli.commands.audit", "List what is in a cluster and breaks a rule."
    ),
    "evict": CommandEntry("reprieve_cli.commands.evict", "Ask pods to save their work and go."),
    "reclaim": CommandEntry(
        "reprieve_cli.commands.reclaim", "Begin to give a lent node back to its home."
    ),
    "explain": CommandEntry(
        "reprieve_cli.commands.explain", "Say what would happen to a pod that had to go."
    ),
    "simulate": CommandEntry(
        "reprieve_cli.commands.simulate", "Say whom a pod would preempt, and why not the others."
    ),
    "cleanup": CommandEntry(
        "reprieve_cli.commands.cleanup", "Remove every trace before uninstalling."
    ),
    "watch": CommandEntry("reprieve_cli.commands.watch", "Show victims as they go."),
    "render": CommandEntry(
        "reprieve_cli.commands.render",
        "Write the rules as policies that the API server evaluates itself.",
    ),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

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
        """Write the list without importing what it names."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self._entries.items()])


@click.command(
    cls=LazyGroup, entries=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="reprieve", message="reprieve %(version)s")
@click.pass_context
def reprieve(ctx: click.Context) -> None:
    """Preemption with notice for Kubernetes: look at manifests and clusters with the rules that admit them."""
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main() -> NoReturn:
    """Run as `reprieve`, or as the plugin of kubectl that its file's name makes it.

    Only a command itself ends with 1: without this, an interrupted check would look like one that found a violation.
    """
    is_plugin = Path(sys.argv[0]).name.startswith("kubectl-")
    try:
        sys.exit(
            reprieve.main(
                prog_name="kubectl reprieve" if is_plugin else "reprieve", standalone_mode=False
            )
        )
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(_EXIT_INTERRUPTED)
    except Exception:  # noqa: BLE001 - a fault of ours
        traceback.print_exc()
        sys.exit(_EXIT_SOFTWARE)
