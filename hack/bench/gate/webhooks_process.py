"""Runs `reprieve-webhooks` in the main thread of this process, with a client in another thread."""

from __future__ import annotations

import os
import signal
import ssl
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from bench import contenders, stub_api
from bench.servers import Command
from reprieve_webhooks import main as program

from .counting import CallCounter
from .tls_client import TlsClient

T = TypeVar("T")
_READY_SECONDS = 600.0
_FIRST_WORDS = 3
"""Of the command: the interpreter and the module."""


def run(
    objects: stub_api.Collections, use: Callable[[TlsClient, CallCounter], T], *flags: str
) -> T:
    """Return what `use` returns of the running program; a stub API server has the objects."""
    counter, result = CallCounter(), Future[T]()
    with tempfile.TemporaryDirectory(prefix="reprieve-gate-") as scratch:
        folder = Path(scratch)
        trust = contenders.write_certificates(folder)
        with stub_api.serve(objects) as url:
            kubeconfig = contenders.write_kubeconfig(url, folder)
            command = contenders.reprieve(
                kubeconfig, folder, "--drain-seconds=0", "--log-level=error", *flags
            )
            client = threading.Thread(target=_use, args=(use, command, trust, counter, result))
            counter.install()
            client.start()
            try:
                program.main(command.words[_FIRST_WORDS:])
            finally:
                counter.remove()
                client.join()
    return result.result()


def _use(
    use: Callable[[TlsClient, CallCounter], T],
    command: Command,
    trust: ssl.SSLContext,
    counter: CallCounter,
    result: Future[T],
) -> None:
    """Wait until the program is ready, use it, and end it."""
    try:
        client = _connect(command.port, trust)
        result.set_result(use(client, counter))
        client.close()
    except BaseException as error:  # noqa: BLE001 - the main thread raises it
        result.set_exception(error)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def _connect(port: int, trust: ssl.SSLContext) -> TlsClient:
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        try:
            client = TlsClient(port, trust)
            client.get("/readyz")
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return client
