"""A kopf operator as a cleaner, on a real API server: the example that releases a licence.

`kopf run` runs as its users run it; the licence server is this test.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest

from reprieve_testing import manifests
from reprieve_testing.cluster.handle import ClusterHandle, wait_for

pytestmark = pytest.mark.cluster

EXAMPLE = manifests.EXAMPLES / "cleaner" / "release_licence.py"
FINALIZER, OTHER = "licences.example.com/release", "example.com/other"
BEFORE = {"reprieve.dev/cleaners-before": FINALIZER}
STOP_SECONDS = 30


class LicenceServer:
    """Counts releases by the pod's uid; while it is down, it answers 503."""

    def __init__(self) -> None:
        self.is_down = False
        self.released: list[str] = []
        self.refused = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def release(self, path: str) -> int:
        if self.is_down:
            self.refused += 1
            return 503
        self.released.append(path.rpartition("/")[2])
        return 204

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        release = self.release

        class Handler(BaseHTTPRequestHandler):
            def do_DELETE(self) -> None:
                self.send_response(release(self.path))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


@pytest.fixture
def licences() -> Iterator[LicenceServer]:
    with LicenceServer() as server:
        yield server


@contextmanager
def cleaner(
    cluster: ClusterHandle, namespace: str, licences: LicenceServer, log: Path
) -> Iterator[None]:
    """Run the example with kopf, for one namespace."""
    command = [sys.executable, "-m", "kopf", "run", "--standalone", "--namespace", namespace]
    environment = os.environ | {
        "KUBECONFIG": str(cluster.cluster.kubeconfig),
        "LICENCE_SERVER": licences.url,
    }
    with log.open("ab") as file:
        process = subprocess.Popen(
            [*command, str(EXAMPLE)], stdout=file, stderr=file, env=environment
        )
    try:
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def metadata(cluster: ClusterHandle, namespace: str, name: str) -> Any:
    return (cluster.pod(namespace, name) or {"metadata": {}})["metadata"]


@pytest.mark.usefixtures("operator")
def test_a_licence_is_released_before_sigterm_and_the_deletion_waits_for_it(
    cluster: ClusterHandle, namespace: str, licences: LicenceServer, tmp_path: Path
) -> None:
    licences.is_down = True
    pod = cluster.create_pod(namespace, "train", annotations=BEFORE, finalizers=[FINALIZER, OTHER])
    with cleaner(cluster, namespace, licences, tmp_path / "kopf.log"):
        cluster.mark(namespace, "train")
        cluster.wait_phase(namespace, "train", "settled")
        wait_for("a refused release", lambda: licences.refused)
        assert "deletionTimestamp" not in metadata(cluster, namespace, "train")
        licences.is_down = False
        wait_for("DELETE", lambda: "deletionTimestamp" in metadata(cluster, namespace, "train"))
        assert licences.released == [pod["metadata"]["uid"]]
        wait_for(
            "only the other cleaner is left",
            lambda: metadata(cluster, namespace, "train").get("finalizers") == [OTHER],
        )
    found = metadata(cluster, namespace, "train")
    assert not [key for key in found["annotations"] if "kopf" in key]


@pytest.mark.usefixtures("operator")
def test_a_cleaner_that_was_away_finds_the_victim_that_waits_for_it(
    cluster: ClusterHandle, namespace: str, licences: LicenceServer, tmp_path: Path
) -> None:
    pod = cluster.create_pod(namespace, "early", annotations=BEFORE, finalizers=[FINALIZER])
    cluster.mark(namespace, "early")
    cluster.wait_phase(namespace, "early", "settled")
    with cleaner(cluster, namespace, licences, tmp_path / "kopf.log"):
        cluster.wait_gone(namespace, "early")
    assert licences.released == [pod["metadata"]["uid"]]


@pytest.mark.usefixtures("operator")
def test_a_licence_is_released_whoever_deletes_the_pod_once_its_containers_have_ended(
    cluster: ClusterHandle, namespace: str, licences: LicenceServer, tmp_path: Path
) -> None:
    uids = {
        name: cluster.create_pod(namespace, name, finalizers=[FINALIZER])["metadata"]["uid"]
        for name in ("victim", "deleted")
    }
    with cleaner(cluster, namespace, licences, tmp_path / "kopf.log"):
        cluster.mark(namespace, "victim")
        cluster.kubectl.read("delete", "pod", "deleted", "-n", namespace, "--wait=false")
        for name in uids:
            cluster.wait_gone(namespace, name)
    assert sorted(licences.released) == sorted(uids.values())


@pytest.mark.slow
@pytest.mark.usefixtures("operator")
def test_a_cleaner_that_restarts_in_the_middle_releases_each_licence(
    cluster: ClusterHandle, namespace: str, licences: LicenceServer, tmp_path: Path
) -> None:
    licences.is_down = True
    pod = cluster.create_pod(namespace, "twice", annotations=BEFORE, finalizers=[FINALIZER])
    with cleaner(cluster, namespace, licences, tmp_path / "first.log"):
        cluster.mark(namespace, "twice")
        wait_for("a refused release", lambda: licences.refused)
    licences.is_down = False
    with cleaner(cluster, namespace, licences, tmp_path / "second.log"):
        cluster.wait_gone(namespace, "twice")
    assert licences.released == [pod["metadata"]["uid"]]
