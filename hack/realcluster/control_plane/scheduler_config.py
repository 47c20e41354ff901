"""kube-scheduler's configuration file, if the user gives one, completed for this cluster.

With `--config`, the scheduler ignores `--kubeconfig`. The file must therefore name the kubeconfig,
which `up` creates.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from realcluster.errors import ClusterError
from realcluster.state import Cluster, write_private

_OURS = "clientConnection"


def check(file: Path) -> None:
    """Raise unless the file can be completed."""
    _completed(file, Path())


def write(cluster: Cluster, kubeconfig: Path) -> Path:
    """Write the scheduler's file from the user's current file; return its path."""
    path = cluster.home / "conf" / "scheduler.yaml"
    write_private(path, _completed(Path(cluster.settings.scheduler_config), kubeconfig))
    return path


def _completed(file: Path, kubeconfig: Path) -> str:
    text = file.read_text()
    ours = {"kubeconfig": str(kubeconfig)}
    if text.lstrip().startswith("{"):
        return _completed_json(file, text, ours)
    if re.search(rf"^{_OURS}\s*:", text, re.MULTILINE):
        raise _taken(file)
    return f"{text}\n{_OURS}: {json.dumps(ours)}\n"  # JSON is YAML


def _completed_json(file: Path, text: str, ours: dict[str, str]) -> str:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ClusterError(
            f"--scheduler-config {file}: begins like JSON but is not JSON: {error}"
        ) from None
    if _OURS in document:
        raise _taken(file)
    return json.dumps(document | {_OURS: ours}, indent=2) + "\n"


def _taken(file: Path) -> ClusterError:
    return ClusterError(f"--scheduler-config {file}: has a {_OURS}, which `up` writes: remove it")
