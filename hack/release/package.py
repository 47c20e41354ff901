"""Build the wheel and the sdist of a package: `python -m release.package FOLDER DIST`.

With `SOURCE_DATE_EPOCH` set, the same files give the same bytes: hatchling takes all times from it,
and no owner, no umask and no order of a file system gets into the archives. Nothing is downloaded.
"""

import subprocess
import sys
from pathlib import Path


def build(folder: Path, dist: Path) -> int:
    """Write both archives into `dist`; return the exit status of hatchling."""
    command = (sys.executable, "-m", "hatchling", "build", "-d", str(dist.resolve()))
    return subprocess.run((*command, "-t", "sdist", "-t", "wheel"), cwd=folder).returncode  # noqa: PLW1510 - the status is the result


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]), Path(sys.argv[2])))
