"""The only place that prints: no text from a cluster or a file can drive the terminal.

Tenants choose names, annotations and the text of errors. An escape sequence in one could change the
title of a window, clear the screen, or hide a line of a plan before a user confirms it. So commands
print with the functions of this module only (`tests/contract/cli/test_output.py`).
"""

import errno
import json
import re
from collections.abc import Iterable

import click

from reprieve_cli.output.finding import printable

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of standard output: no command writes to a file."""
_STYLE = re.compile(r"(\x1b\[(?:[012]|3[1-6])m)")
"""What `click.style` writes for the commands: bold, dim, a colour, or the end of these."""
_DELETE = "\x7f"


def echo(line: str = "", *, err: bool = False) -> None:
    """Print one line without styles; a line break in it is escaped, too."""
    click.echo(printable(line), err=err)


def echo_styled(lines: Iterable[str]) -> None:
    """Print lines that may have the commands' own styles."""
    for line in lines:
        click.echo(_styled(line))


def echo_part(text: str, *, err: bool = False) -> None:
    """Print a part of a text of several lines, which may have the commands' own styles."""
    click.echo("\n".join(map(_styled, text.split("\n"))), nl=False, err=err)


def is_of_output(error: OSError) -> bool:
    """True if standard output cannot be written: the disk is full, or its reader has ended."""
    return error.errno in (*NO_SPACE, errno.EPIPE)


def to_json(document: object, *, is_compact: bool = False) -> str:
    """Return a document as one line of JSON in ASCII, without control characters."""
    text = json.dumps(document, separators=(",", ":") if is_compact else None)
    # JSON allows this control character as it is.
    return text.replace(_DELETE, r"\u007f")


def _styled(line: str) -> str:
    """Escape the control characters of a line, except those of the commands' own styles."""
    if line.isprintable():
        return line
    # Every second part is what the pattern matches.
    return "".join(
        part if number % 2 else printable(part) for number, part in enumerate(_STYLE.split(line))
    )
