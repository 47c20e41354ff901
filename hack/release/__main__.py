"""The command line of `make release VERSION=0.2.0` and `make version VERSION=0.2.0`."""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from . import changelog, checks, dist, parts, version

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = ROOT / "CHANGELOG.md"


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit status."""
    parser = argparse.ArgumentParser("release", description=__doc__)
    parser.add_argument("command", choices=("build", "version"))
    parser.add_argument("version")
    parser.add_argument("--without", default="", help="parts to leave out, with commas between")
    options = parser.parse_args(arguments)
    if options.command == "version":
        return set_version(options.version)
    return release(options.version, {name for name in options.without.split(",") if name})


def release(wanted: str, without: set[str]) -> int:
    """Build all parts into `dist/`, with notes and checksums, and list them."""
    if problems := list(checks.problems(ROOT, wanted, without)):
        return _refuse(*problems)
    folder = ROOT / "dist"
    dist.emptied(folder)
    epoch = checks.commit_time(ROOT)
    for part in parts.chosen(without):
        print(f"release: building {part.name}", file=sys.stderr, flush=True)
        if problem := parts.build(part, ROOT, folder, wanted, epoch):
            return _refuse(problem)
    if changed := checks.changes(ROOT):
        return _refuse(f"the build changed files that git has: {', '.join(changed)}")
    notes = changelog.notes(CHANGELOG.read_text(encoding="utf-8"), wanted)
    (folder / dist.NOTES).write_text(notes, encoding="utf-8")
    dist.write_sums(folder)
    print(*dist.listing(folder), sep="\n")
    return 0


def set_version(new: str) -> int:
    """Write the version into each place, and cut the changelog."""
    if not version.VERSION.fullmatch(new):
        return _refuse(f"VERSION={new}: three numbers are needed, as in VERSION=0.2.0")
    text = CHANGELOG.read_text(encoding="utf-8")
    day = datetime.now(UTC).date().isoformat()
    try:
        CHANGELOG.write_text(changelog.cut(text, new, day), encoding="utf-8")
    except changelog.ChangelogError as error:
        return _refuse(str(error))
    print(*version.change(ROOT, new), "CHANGELOG.md", sep="\n")
    return 0


def _refuse(*problems: str) -> int:
    for problem in problems:
        print(f"release: {problem}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
