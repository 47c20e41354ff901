"""`reprieve check` as a user runs it, on files that a test writes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from reprieve_cli.main import reprieve


@dataclass(frozen=True)
class Checked:
    """The output and the exit status."""

    status: int
    output: str

    @property
    def lines(self) -> list[str]:
        """Return all lines but the summary."""
        return self.output.splitlines()[:-1]

    @property
    def document(self) -> Any:
        """Return the output as JSON."""
        return json.loads(self.output)


def run(*words: object, stdin: bytes | None = None) -> Checked:
    """Run `reprieve check`; an exception is the test's failure."""
    result = CliRunner().invoke(
        reprieve, ["check", *map(str, words)], input=stdin, catch_exceptions=False
    )
    return Checked(result.exit_code, result.output)


def write(folder: Path, name: str, content: str | bytes) -> Path:
    """Write a file, and create its folders."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def pod(name: str = "p", **fields: str) -> str:
    """Return a Pod in namespace `team`; fields are lines of metadata, as `labels='{a: b}'`."""
    lines = "".join(f"  {key}: {value}\n" for key, value in fields.items())
    return f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: team\n{lines}"
