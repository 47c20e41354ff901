"""`reprieve-agent`: started beside a workload by the mutating webhook, with the one file and the one signal that it may touch."""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import PurePosixPath

from .desk import CheckpointHandler
from .mailbox import RequestFiles
from .server import AgentServer
from .signals import SignalSender

PORT = 10473
"""Where Reprieve asks; fixed, so that nothing in a pod can point it elsewhere."""
SIGNALS = ("HUP", "INT", "QUIT", "USR1", "USR2")


def main(words: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM; return the exit status."""
    options = _parse(words)
    # As PID 1 of its container, a process has no default for these: it would ignore them, and be killed after its grace.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        # First of all, so that what is there, and cannot be read, is known before anybody asks.
        desk = CheckpointHandler(RequestFiles(options.request), _signaller(options), _log)
        server = AgentServer(options.address, PORT, desk.handle)
    except OSError as error:
        _log("cannot start", error=str(error))
        return 1
    _log("listening", address=options.address, port=PORT, request=options.request)
    try:
        server.serve()
    finally:
        server.close()
    return 0


def _signaller(options: argparse.Namespace) -> SignalSender | None:
    return (
        None
        if options.signal is None
        else SignalSender(options.signal, str(PurePosixPath(options.request).parent))
    )


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("reprieve-agent", description=__doc__)
    parser.add_argument(
        "--request", required=True, type=_absolute, help="the file that requests are written to"
    )
    parser.add_argument(
        "--signal", choices=SIGNALS, help="sent to the container that has the request's volume too"
    )
    parser.add_argument(
        "--address", default=os.environ.get("POD_IP"), help="to listen on (default: $POD_IP)"
    )
    parser.add_argument(
        "--version", action=_VersionAction, nargs=0, help="show the version and exit"
    )
    options = parser.parse_args(words)
    if not options.address:
        parser.error("--address or POD_IP must say where to listen")
    return options


class _VersionAction(argparse.Action):
    """Read the version only where it is asked for: it costs as much memory as all the rest."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version  # noqa: PLC0415

        sys.stdout.write(f"{parser.prog} {version('reprieve')}\n")
        parser.exit()


def _absolute(text: str) -> str:
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts or len(path.parts) < 3:
        raise argparse.ArgumentTypeError(
            "must be an absolute path of a file in a folder of its own"
        )
    return str(path)


def _stop(*_: object) -> None:
    sys.exit(0)


def _log(message: str, **fields: object) -> None:
    """Write one line; a log that nobody takes is no reason to stop."""
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
