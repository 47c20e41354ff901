"""What one victim's life costs `reprieve-operator`: from its mark to its last Event.

The victim belongs to a Job and is hinted over HTTP. It answers `saving`, and `saved` when it is
asked again; then the operator records that on the Job, and deletes the pod.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from bench import contenders
from bench.victims import pods
from bench.victims.measurement import WorkloadProcess
from realcluster import ports
from reprieve_operator import main as program

from . import api_process, counting
from .counting import CallCounter, Cost

_NAMESPACE = "gate"
_WARM_UP, _LIVES = 3, 9
_STILL_SECONDS = 0.4
"""Longer than any pause in a life: the operator polls, and writes Events, less often than this."""
_PATIENCE_SECONDS = 600.0
_FLAGS = (
    "--listen-address=127.0.0.1",
    "--metrics-authentication=none",
    "--allow-loopback-pod-ips=true",
    "--poll-interval-seconds=0.1",
    "--sweep-interval-seconds=86400",
    "--resync-interval-seconds=86400",
    "--lease-duration-seconds=86400",
    "--renew-deadline-seconds=80000",
    "--retry-period-seconds=40000",
    "--log-level=ERROR",
)
"""Nothing that comes by time falls into a life, but the one poll."""


@dataclass(frozen=True)
class Life:
    """What one life cost."""

    cost: Cost
    api_calls: Mapping[str, int]


def measure() -> dict[str, float]:
    """Return the figures."""
    lives = _measured_lives()[_WARM_UP:]
    kinds = sorted({kind for life in lives for kind in life.api_calls})
    return {
        **counting.figures("life of a victim", [life.cost for life in lives]),
        **{
            f"life of a victim: API calls, {kind}": statistics.median(
                life.api_calls.get(kind, 0) for life in lives
            )
            for kind in kinds
        },
    }


def _measured_lives() -> Sequence[Life]:
    counter, result = CallCounter(), Future[Sequence[Life]]()
    with (
        tempfile.TemporaryDirectory(prefix="reprieve-gate-") as scratch,
        api_process.running() as port,
        WorkloadProcess.running("saving") as workload,
    ):
        kubeconfig = contenders.write_kubeconfig(f"http://127.0.0.1:{port}", Path(scratch))
        flags = [f"--{name}={ports.any_free()}" for name in ("listen-port", "metrics-port")]
        sys.argv = [program.__name__, *_FLAGS, *flags, f"--kubeconfig={kubeconfig}"]
        driver = _Driver(port, workload.port, counter)
        thread = threading.Thread(target=_drive, args=(driver, result))
        counter.install()
        thread.start()
        try:
            program.main()
        finally:
            counter.remove()
            thread.join()
    return result.result()


def _drive(driver: _Driver, result: Future[Sequence[Life]]) -> None:
    """Have victims live one after another, and end the program."""
    try:
        driver.wait_until_leading()
        result.set_result([driver.live(number) for number in range(_WARM_UP + _LIVES)])
    except BaseException as error:  # noqa: BLE001 - the main thread raises it
        result.set_exception(error)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


class _Driver:
    """Acts on the stub API server as a user does."""

    def __init__(self, port: int, workload_port: int, counter: CallCounter) -> None:
        self._port, self._workload_port, self._counter = port, workload_port, counter

    def wait_until_leading(self) -> None:
        """Return once the operator handles victims."""
        lease = "/apis/coordination.k8s.io/v1/namespaces/reprieve-system/leases/reprieve-operator"
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self._exists(lease):
            self._wait(deadline)
        self._counter.wait_still(_STILL_SECONDS)

    def live(self, number: int) -> Life:
        """Mark a new pod, and return the cost until it is gone and nothing more happens."""
        path = self._create(number)
        before = counting.cost_so_far(self._counter.wait_still(_STILL_SECONDS))
        api_calls = Counter(self._call("GET", api_process.COUNTS))
        self._call("PATCH", path, pods.MARK)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self._exists(path):
            self._wait(deadline)
        after = counting.cost_so_far(self._counter.wait_still(_STILL_SECONDS))
        return Life(after.since(before), Counter(self._call("GET", api_process.COUNTS)) - api_calls)

    def _create(self, number: int) -> str:
        """Create a running pod and its Job; return the pod's path."""
        pod = pods.victim(_NAMESPACE, number, 1, self._workload_port)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"job-{number}", "uid": "j"}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        more = {"uid": f"{number:036}", "namespace": _NAMESPACE, "creationTimestamp": now}
        pod["metadata"] |= more | {"ownerReferences": [owner | {"controller": True}]}
        pod["status"] = {"phase": "Running", "podIP": "127.0.0.1", "startTime": now}
        job = {"name": owner["name"], "namespace": _NAMESPACE, "uid": "j"}
        self._call(
            "POST",
            f"/apis/batch/v1/namespaces/{_NAMESPACE}/jobs",
            {"metadata": job, "spec": {}, "status": {}},
        )
        collection = f"/api/v1/namespaces/{_NAMESPACE}/pods"
        self._call("POST", collection, pod)
        return f"{collection}/{pod['metadata']['name']}"

    def _exists(self, path: str) -> bool:
        return self._try("GET", path)[0] != HTTPStatus.NOT_FOUND

    def _wait(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_PATIENCE_SECONDS:.0f} s")
        time.sleep(0.05)

    def _call(self, method: str, path: str, body: object = None) -> Any:
        status, answer = self._try(method, path, body)
        if status >= HTTPStatus.BAD_REQUEST:
            raise ConnectionError(f"{method} {path}: {status} {answer}")
        return answer

    def _try(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request(method, path, data)
            answer = connection.getresponse()
            return answer.status, json.load(answer)
        finally:
            connection.close()
