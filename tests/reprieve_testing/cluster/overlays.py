"""The examples as a user adapts them: an own kustomization over the tree's.

Here the kustomizations add what a test cluster lacks.
"""

import json
import os
import shutil
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc

import stubs
from realcluster.real_nodes import image
from reprieve_testing.manifests import EXAMPLES

_TEMPLATE = "/spec/template/spec"
_CONTAINER = f"{_TEMPLATE}/containers/0"

Patch = dict[str, Any]


def with_time_to_answer(namespace: str, folder: Path) -> Path:
    """Write the annotation example with a deadline for a busy machine.

    Its kubelet may update the file seconds late.
    """
    timeout = "/spec/template/metadata/annotations/reprieve.dev~1checkpoint-timeout"
    return _write("annotation", namespace, folder, [_add(timeout, value="25s")])


def on_a_slot(namespace: str, folder: Path, node: str, priority_class: str, resource: str) -> Path:
    """Write the annotation example for one unit of a node's resource, so that it is preempted."""
    patches = [
        _add(f"{_TEMPLATE}/priorityClassName", priority_class),
        _add(f"{_TEMPLATE}/nodeSelector", {"kubernetes.io/hostname": node}),
        *(
            _add(f"{_CONTAINER}/resources/{kind}/{resource.replace('/', '~1')}", "1")
            for kind in ("requests", "limits")
        ),
    ]
    return _write("annotation", namespace, folder, patches)


def with_grpc(namespace: str, folder: Path) -> Path:
    """Write the gRPC example for a node whose image lacks gRPC.

    It mounts gRPC's packages and the stubs, which the example's own image would contain.
    """
    own = folder / "own"
    own.mkdir(mode=0o755)
    stubs.compile_into(f"--python_out={own}", f"--grpc_python_out={own}")
    # The image has the libraries that Python is linked with; gRPC's extension needs more of them.
    for library in image._shared_libraries(Path(grpc.__file__).parent.glob("_cython/*.so")):
        shutil.copy(library, own)
    places = {"/packages": sysconfig.get_path("platlib"), "/own": str(own)}
    patches = [
        {"op": "replace", "path": f"{_CONTAINER}/image", "value": image.PYTHON_IMAGE},
        *_variables(PYTHONPATH=":".join(places), LD_LIBRARY_PATH=f"{image.LIBRARIES}:/own"),
        *(patch for place, source in places.items() for patch in _mounted(place, source)),
    ]
    return _write("grpc", namespace, folder, patches)


def _variables(**values: str) -> Iterable[Patch]:
    return [
        _add(f"{_CONTAINER}/env/-", {"name": name, "value": value})
        for name, value in values.items()
    ]


def _mounted(place: str, source: str) -> Iterable[Patch]:
    name = place.strip("/")
    yield _add(
        f"{_TEMPLATE}/volumes/-", {"name": name, "hostPath": {"path": source, "type": "Directory"}}
    )
    yield _add(f"{_CONTAINER}/volumeMounts/-", {"name": name, "mountPath": place, "readOnly": True})


def _add(path: str, value: object) -> Patch:
    return {"op": "add", "path": path, "value": value}


def _write(example: str, namespace: str, folder: Path, patches: Iterable[Patch]) -> Path:
    overlay = {
        "namespace": namespace,
        "resources": [os.path.relpath(EXAMPLES / example, folder.resolve())],
        "patches": [{"target": {"kind": "Job"}, "patch": json.dumps(list(patches))}],
    }
    (folder / "kustomization.yaml").write_text(json.dumps(overlay))
    return folder
