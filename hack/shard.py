"""`make test-shard SHARD=2/4`: divide test files into parts that a CI runs side by side.

Prints the files of one part. Every file is in exactly one part. A file weighs its number of tests.
The heaviest file comes first, and each goes to the part that is lightest so far.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

_TEST = re.compile(r"^(?:async )?def test_", re.MULTILINE)
_SHARD = re.compile(r"([1-9]\d*)/([1-9]\d*)")


def divide(weights: dict[Path, int], parts: int) -> list[list[Path]]:
    """Return the files of each part."""
    shards: list[list[Path]] = [[] for _ in range(parts)]
    sums = [0] * parts
    for path in sorted(weights, key=lambda path: (-weights[path], path)):
        lightest = sums.index(min(sums))
        shards[lightest].append(path)
        sums[lightest] += weights[path]
    return [sorted(shard) for shard in shards]


def weigh(folders: Iterable[Path]) -> dict[Path, int]:
    """Return the number of tests in each test file below `folders`."""
    files = (path for folder in folders for path in folder.rglob("test_*.py"))
    return {path: len(_TEST.findall(path.read_text(encoding="utf-8"))) for path in files}


def main(arguments: list[str]) -> int:
    """Print the files of the part that the first argument names; return the exit status."""
    match = _SHARD.fullmatch(arguments[0]) if arguments else None
    if match is None or int(match[1]) > int(match[2]):
        print("shard: name a part and the number of parts: SHARD=2/4", file=sys.stderr)
        return 2
    shards = divide(weigh(map(Path, arguments[1:])), int(match[2]))
    print(*shards[int(match[1]) - 1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
