"""The demo's workloads.

The training example as it is, or as a single pod that behaves differently.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from realcluster import install
from realcluster.local_processes.container import ANNOTATION

from .installation import Installation, Nodes
from .session import Background, Session

EXAMPLES = f"{install.MANIFESTS.name}/examples"
READY_SECONDS = 90.0


def start_job(session: Session) -> str:
    """Apply the example unchanged; return the name of its running pod."""
    if session.installation.nodes is Nodes.LOCAL:
        _apply_locally(session)
    else:
        session.run("apply", "-n", session.namespace, "-k", EXAMPLES)
    return wait_for_pod(session, "-l", "batch.kubernetes.io/job-name=training")


def build_pod(
    session: Session, name: str, *, mode: str = "saves", save_seconds: float = 1, **metadata: Any
) -> Any:
    """Return the example's pod as a single pod with other behaviour.

    `metadata` holds finalizers and annotations; `None` removes one of the example's annotations.
    """
    template = _job(session)["spec"]["template"]
    said = {
        **template["metadata"]["annotations"],
        **_place(session.installation),
        **metadata.pop("annotations", {}),
    }
    annotations = {key: value for key, value in said.items() if value is not None}
    labels = {**template["metadata"]["labels"], "app.kubernetes.io/name": name}
    container = template["spec"]["containers"][0]
    manners = {"MODE": mode, "SAVE_SECONDS": str(save_seconds)}
    container["env"] = [
        {"name": entry["name"], "value": manners[entry["name"]]}
        if entry["name"] in manners
        else entry
        for entry in container["env"]
    ]
    metadata = {"name": name, "labels": labels, "annotations": annotations, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def start_pods(session: Session, *pods: Any) -> None:
    """Create pods, with their program and volume, and wait until all pods run."""
    needed = [item for item in _rendered(session) if item["kind"] != "Job"]
    items = [
        {**item, "metadata": {**item["metadata"], "namespace": session.namespace}}
        for item in (*needed, *pods)
    ]
    session.quiet.apply(*items)
    for pod in pods:
        wait_for_pod(session, "-l", f"app.kubernetes.io/name={pod['metadata']['name']}")


def wait_for_pod(session: Session, *selection: str, but: str = "") -> str:
    """Return the name of the selected pod, other than `but`, whose program is training."""

    def training() -> str | None:
        for pod in session.quiet.get("pods", "-n", session.namespace, *selection)["items"]:
            name = str(pod["metadata"]["name"])
            if (
                name != but
                and pod["status"].get("phase") == "Running"
                and "training from step" in log_of(session, name)
            ):
                return name
        return None

    return session.wait("running workload", training, READY_SECONDS)


def log_of(session: Session, pod: str) -> str:
    """Return what a workload has written so far."""
    if session.installation.nodes is Nodes.LOCAL:
        file = session.installation.log_of_local_pod(session.namespace, pod)
        return file.read_text() if file.exists() else ""
    return session.quiet.run("logs", pod, "-n", session.namespace).stdout


def show_log(session: Session, pod: str) -> str:
    """Show what a workload has written so far, and return it."""
    if session.installation.nodes is Nodes.LOCAL:
        text = log_of(session, pod)
        session.narrator.show(
            f"cat {session.installation.log_of_local_pod(session.namespace, pod)}", text
        )
        return text
    return session.run("logs", pod, "-n", session.namespace).stdout


@contextlib.contextmanager
def following(session: Session, pod: str) -> Iterator[Background]:
    """Follow a workload's log during the block: a pod's log is removed with the pod."""
    if session.installation.nodes is not Nodes.LOCAL:
        with session.watching("logs", pod, "-n", session.namespace, "-f") as background:
            yield background
    else:
        yield session.file(session.installation.log_of_local_pod(session.namespace, pod))


def _rendered(session: Session) -> list[Any]:
    """Return the example's objects, as `kubectl apply -k` would apply them."""
    rendered = session.quiet.read("kustomize", EXAMPLES)
    items = session.quiet.read(
        "create",
        "-n",
        session.namespace,
        "--dry-run=client",
        "-o",
        "json",
        "-f",
        "-",
        stdin=rendered,
    )
    return _objects(items)


def _objects(text: str) -> list[Any]:
    """Return the objects of concatenated JSON documents, as kubectl writes them."""
    decoder, position = json.JSONDecoder(), 0
    objects: list[Any] = []
    while position < len(text):
        item, position = decoder.raw_decode(text, position)
        objects.extend(item["items"] if item["kind"] == "List" else [item])
        position += len(text[position:]) - len(text[position:].lstrip())
    return objects


def _job(session: Session) -> Any:
    return next(item for item in _rendered(session) if item["kind"] == "Job")


def _apply_locally(session: Session) -> None:
    items = _rendered(session)
    for item in items:
        if item["kind"] == "Job":
            item["spec"]["template"]["metadata"]["annotations"] |= _place(session.installation)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    session.narrator.say(
        f"Its pods have the annotation {ANNOTATION}: local processes replace their containers."
    )
    session.run("apply", "-n", session.namespace, "-f", "-", stdin=text)


def _place(installation: Installation) -> Mapping[str, str]:
    """Return the annotations that a pod needs to run here."""
    return {ANNOTATION: "true"} if installation.nodes is Nodes.LOCAL else {}
