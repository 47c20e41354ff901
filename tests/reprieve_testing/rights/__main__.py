"""`python -m reprieve_testing.rights FOLDER`: compare what a run used with the roles."""

import argparse
import sys
from pathlib import Path

from .comparison import UNSEEN, compare
from .usage import read_folder


def main() -> int:
    """Print the differences; return 1 if there are any, and 2 where there is nothing to compare."""
    parser = argparse.ArgumentParser("rights", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the clusters wrote what was used")
    folder: Path = parser.parse_args().folder
    files = len(list(folder.glob("*.json")))
    if not files:
        sys.stderr.write(f"rights: no cluster wrote to {folder}: did the cluster tests run?\n")
        return 2
    usage = read_folder(folder)
    difference = compare(usage)
    lines = [
        f"{len(usage.used)} rights were used by the programs of {files} clusters",
        *(f"not in an audit log: {' '.join(right)}: {why}" for right, why in UNSEEN.items()),
        difference.render() or "no right is unused, and none is missing",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return int(bool(difference))


if __name__ == "__main__":
    sys.exit(main())
