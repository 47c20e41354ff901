"""`python -m mainjob`: make the demo's cluster and run its chapters.

`--down` removes the cluster.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from realcluster import lifecycle
from realcluster.errors import ClusterError
from realcluster.progress import Progress

from . import existing_cluster, installation, runner
from .deployments import build_image
from .narrator import Narrator
from .promise import BrokenPromiseError

CLUSTER = "demo"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 only if every chapter kept its promise."""
    options = _parser().parse_args(arguments)
    progress = Progress()
    try:
        if options.down:
            lifecycle.down(options.name, keep_logs=False, progress=progress)
            return 0
        if options.kubeconfig:
            return existing_cluster.run(options.kubeconfig, Narrator(), progress)
        return _run(options.name, options.chapter, progress)
    except (BrokenPromiseError, ClusterError) as error:
        progress.say(f"demo: {error}")
        return 1
    except KeyboardInterrupt:
        progress.say(
            "demo: interrupted; run it again to start over, `make demo-down` removes what it made"
        )
        return 130


def _run(name: str, numbers: Sequence[int], progress: Progress) -> int:
    narrator = Narrator()
    with tempfile.TemporaryDirectory(prefix="reprieve-demo-") as folder:
        here = installation.bring_up(name, progress, image=build_image(Path(folder), progress))
    kept = runner.run(
        here, narrator, [runner.CHAPTERS[number - 1] for number in numbers] or runner.CHAPTERS
    )
    narrator.say(
        f"{narrator.seconds:.0f} s in total. The cluster, with Reprieve in it, keeps running:"
    )
    narrator.show(
        f"export KUBECONFIG={here.kubectl.kubeconfig} PATH={here.kubectl.program.parent}:$PATH", ""
    )
    narrator.show("make demo-down    # removes it", "")
    return 0 if kept else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("mainjob", description=__doc__)
    parser.add_argument(
        "--name", default=CLUSTER, help="the cluster to create or to reuse (default: %(default)s)"
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="use the cluster of this kubeconfig, after asking",
    )
    chapters = range(1, len(runner.CHAPTERS) + 1)
    only = "run only this chapter (may be given several times)"
    parser.add_argument(
        "--chapter", type=int, action="append", choices=chapters, default=[], help=only
    )
    parser.add_argument(
        "--down", action="store_true", help="remove the cluster and everything in it"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
