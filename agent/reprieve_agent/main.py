"""`reprieve-agent`: delivers checkpoint requests to the workload of its pod, by file and signal.

It also reports when the workload saved by itself. The mutating webhook adds it to pods, with the
one request file and the one signal that it may use.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import PurePosixPath

from .handler import CheckpointHandler
from .report_call import ReportTarget
from .reporter import POLL_SECONDS, SaveReporter
from .request_files import RequestFiles
from .server import AgentServer
from .signal_sender import SignalSender

PORT = 10473
"""The port that the operator calls; fixed, so that nothing in a pod can redirect it."""
SIGNALS = ("HUP", "INT", "QUIT", "USR1", "USR2")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM; return the exit status."""
    options = _parse(arguments)
    # PID 1 of a container has no default handlers for these: it would ignore them, and be killed
    # after its grace period.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        # Created first: unreadable files are an error before the first request.
        files = RequestFiles(options.request)
        handler = CheckpointHandler(files, _signal_sender(options), _log)
        server = AgentServer(options.address, PORT, handler.handle, _log)
    except OSError as error:
        _log("cannot start", error=str(error))
        return 1
    _log("listening", address=options.address, port=PORT, request=options.request)
    try:
        reporter = _reporter(files)
        if reporter is None:
            server.serve()
        else:
            server.serve(tick=reporter.tick, tick_seconds=POLL_SECONDS)
    finally:
        server.close()
    return 0


def _signal_sender(options: argparse.Namespace) -> SignalSender | None:
    return (
        None
        if options.signal is None
        else SignalSender(options.signal, str(PurePosixPath(options.request).parent))
    )


def _reporter(files: RequestFiles) -> SaveReporter | None:
    """Return what reports saves; `None` if the webhook did not say where to.

    These are variables, not arguments: an agent of an earlier version does not know them.
    """
    target = ReportTarget(
        *(os.environ.get(f"REPRIEVE_REPORT_{name}", "") for name in ("URL", "CA", "TOKEN_FILE"))
    )
    return SaveReporter(files, target, _log) if all(target) else None


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("reprieve-agent", description=__doc__)
    parser.add_argument(
        "--request", required=True, type=_absolute, help="file to write requests to"
    )
    parser.add_argument(
        "--signal",
        choices=SIGNALS,
        help="signal to send to the container that also mounts the volume of the request file",
    )
    parser.add_argument(
        "--address",
        default=os.environ.get("POD_IP"),
        help="address to listen on (default: $POD_IP)",
    )
    parser.add_argument(
        "--version", action=_VersionAction, nargs=0, help="show the version and exit"
    )
    options = parser.parse_args(arguments)
    if not options.address:
        parser.error("--address or POD_IP is required")
    return options


class _VersionAction(argparse.Action):
    """Read the version only if requested: it takes as much memory as the rest of the agent."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version  # noqa: PLC0415

        sys.stdout.write(f"{parser.prog} {version('reprieve')}\n")
        parser.exit()


def _absolute(text: str) -> str:
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts or len(path.parts) < 3:
        raise argparse.ArgumentTypeError("must be the absolute path of a file in its own folder")
    return str(path)


def _stop(*_: object) -> None:
    sys.exit(0)


def _log(message: str, **fields: object) -> None:
    """Write one line; ignore a log that cannot be written."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = json.dumps(
        {
            "time": moment,
            "message": message,
            **{key: value for key, value in fields.items() if value is not None},
        }
    )
    try:
        sys.stderr.write(line + "\n")
    except OSError:
        return
