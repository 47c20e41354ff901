"""One pod's process: start, file updates, TERM and KILL, status reports. One thread for each."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

from realcluster.client import api
from realcluster.state import Cluster

from . import container
from .container import LOST, Folders, Json, Lookup

USER = "kwok"  # in the audit log, these requests differ from an administrator's
POLL_SECONDS = 0.02
AGAIN_SECONDS = 0.5
# A kubelet's delays between restarts, doubling; the first restart is immediate.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 300.0

# The process dies with the runner (PR_SET_PDEATHSIG = 1). Otherwise, it would keep the address.
GUARD = "import ctypes,os,sys; ctypes.CDLL(None).prctl(1,9); os.execvp(sys.argv[1],sys.argv[1:])"


class Workload:
    """A pod with its process.

    The runner's thread calls `observe` and `kill`; the rest has its own.
    """

    def __init__(self, cluster: Cluster, pod: Json, folders: Folders, data: Lookup) -> None:
        self._cluster, self._pod, self._folders, self._data = cluster, pod, folders, data
        self._lost = folders.pod.exists()  # an earlier runner started it
        self._deleted, self._abandoned = threading.Event(), False
        self._kill_at: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._started = now()
        self._writing = threading.Lock()
        """For the files: both threads write them, and the newest state of the pod must remain."""
        self._thread = threading.Thread(target=self._live, name=self.name, daemon=True)
        self.observe(pod)
        self._thread.start()

    @property
    def name(self) -> str:
        """The name of its log and its thread."""
        return f"pod-{self._pod['metadata']['namespace']}-{self._pod['metadata']['name']}"

    def observe(self, pod: Json) -> None:
        """Handle a new state of the pod: files and deletion. A grace period can only shrink."""
        self._pod = pod
        if self._folders.pod.exists():
            with self._writing:
                write_files(container.downward_files(self._pod, self._folders))
        if pod["metadata"].get("deletionTimestamp"):
            at = time.monotonic() + pod["metadata"].get("deletionGracePeriodSeconds", 30)
            self._kill_at = at if self._kill_at is None else min(at, self._kill_at)
            self._deleted.set()

    def kill(self) -> None:
        """End the process at once without a report.

        The pod no longer exists, or the runner ends.
        """
        self._abandoned, self._kill_at = True, 0.0
        self._deleted.set()
        self._signal_all(signal.SIGKILL)

    def _live(self) -> None:
        """Run the container to its end, report it, and remove the pod if it was deleted."""
        exit_code, runs = self._first_run()
        while not self._deleted.is_set() and container.restarts(self._pod, exit_code):
            if self._deleted.wait(
                min(FIRST_PAUSE_SECONDS * 2 ** (runs - 2), LONGEST_PAUSE_SECONDS) if runs > 1 else 0
            ):
                break
            started, self._started = self._started, now()
            self._patch_status(
                container.restarted_status(self._pod, exit_code, runs, started, self._started)
            )
            exit_code, runs = self._run(), runs + 1
        if self._abandoned:
            return
        if not container.has_ended(self._pod):
            self._patch_status(container.final_status(self._pod, exit_code, self._started, now()))
        self._deleted.wait()
        if self._abandoned:
            return
        metadata = self._pod["metadata"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        self._insist("DELETE", self._path, options)
        shutil.rmtree(self._folders.pod, ignore_errors=True)

    def _first_run(self) -> tuple[int, int]:
        """Return the exit code of the first run.

        LOST if the process ended with an earlier runner.
        """
        if self._lost or self._deleted.is_set():
            return LOST, 1
        return self._run(), 1

    def _run(self) -> int:
        """Run the process to its end; when the pod is deleted, send TERM and later KILL."""
        self._folders.pod.mkdir(parents=True, exist_ok=True)
        with self._writing:
            write_files(container.files(self._pod, self._data, self._folders))
        for place in container.mounts(self._pod, self._folders).values():
            if not place.is_file():  # mounted by a subPath
                place.mkdir(parents=True, exist_ok=True)
        try:
            process = self._process = self._start()
        except OSError as error:
            self._log(f"cannot start: {error}")
            return 128
        is_terminated = False
        while process.poll() is None:
            if self._deleted.is_set() and not is_terminated:
                is_terminated = True
                process.terminate()
            if is_terminated and self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._signal_all(signal.SIGKILL)
            time.sleep(POLL_SECONDS)
        self._signal_all(signal.SIGKILL)  # a container ends with its first process
        return process.returncode if process.returncode >= 0 else 128 - process.returncode

    def _start(self) -> subprocess.Popen[bytes]:
        own = container.environment(self._pod, self._data, self._folders)
        basis = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._folders.pod),
            "PYTHONUNBUFFERED": "1",
        }
        command = [sys.executable, "-c", GUARD, *container.command(self._pod, own, self._folders)]
        with self._log_file.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folders.pod,
                env=basis | own,
                start_new_session=True,
            )

    def _signal_all(self, number: signal.Signals) -> None:
        if self._process:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    @property
    def _path(self) -> str:
        metadata = self._pod["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"

    def _patch_status(self, status: Json) -> None:
        """Write the status of this pod only: the uid in a patch is a precondition."""
        self._insist(
            "PATCH",
            f"{self._path}/status",
            {"metadata": {"uid": self._pod["metadata"]["uid"]}, "status": status},
        )

    def _insist(self, method: str, path: str, body: Json) -> None:
        """Repeat a request until the server answers; return early if the pod no longer exists."""
        while True:
            try:
                api.call(self._cluster, method, path, body, user=USER)
            except OSError as error:
                self._log(f"{method} {path}: {error}; again")
            except api.Refused as refused:
                if refused.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                    return
                self._log(f"{method} {path}: {refused}; again")
            else:
                return
            time.sleep(AGAIN_SECONDS)

    @property
    def _log_file(self) -> Path:
        return self._cluster.processes.log(self.name)

    def _log(self, text: str) -> None:
        print(f"{self.name}: {text}", file=sys.stderr, flush=True)


def write_files(texts: dict[Path, str]) -> None:
    """Write files so that a reader sees the old or the new text, never a part."""
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_text(text)
        part.replace(path)


def now() -> str:
    """Return the time as the API server writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
