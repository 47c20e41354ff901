"""`python -m reprieve_testing.rights FOLDER`: compare what a run used with the roles."""

import sys
from pathlib import Path

from .comparison import UNSEEN, compare
from .usage import read_folder


def main() -> int:
    """Print the differences; return 1 if there are any."""
    folder = Path(sys.argv[1])
    usage = read_folder(folder)
    difference = compare(usage)
    files = len(list(folder.glob("*.json")))
    lines = [
        f"{len(usage.used)} rights were used by the programs of {files} clusters",
        *(f"not in an audit log: {' '.join(right)}: {why}" for right, why in UNSEEN.items()),
        difference.render() or "no right is unused, and none is missing",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return int(bool(difference))


if __name__ == "__main__":
    sys.exit(main())
