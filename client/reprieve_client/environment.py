"""What the pod says in environment variables. No other module reads them.

| variable | says |
|---|---|
| `REPRIEVE_CHECKPOINT_HINT` | how the pod is asked: the value of its annotation |
| `REPRIEVE_RESUME_FROM_CHECKPOINT` | the checkpoint that the pod before acknowledged |
| `REPRIEVE_CHECKPOINT_REQUEST` | the file of the downward API with the request (`annotation:`) |
| `POD_IP`, `POD_NAME` | the pod's address and name |
| `LOCAL_RANK`, `SLURM_LOCALID`, `OMPI_COMM_WORLD_LOCAL_RANK` | which process of the pod this is |
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
_NO_PATH = "true"
"""What Reprieve hands over where the workload acknowledged a save without a path."""


class Environment(NamedTuple):
    """What a session reads from the environment."""

    hint: str
    resume_path: Path | str | None
    """As text where it is a URL: a `Path` would make one slash of its two."""
    annotation_file: str
    address: str
    pod_name: str
    is_first_process: bool
    """The first process of a pod is asked for all of them."""


def read() -> Environment:
    """Read the variables."""
    variables = os.environ
    resume = variables.get("REPRIEVE_RESUME_FROM_CHECKPOINT", "")
    ranks = [variables[name] for name in _LOCAL_RANKS if name in variables]
    return Environment(
        hint=variables.get("REPRIEVE_CHECKPOINT_HINT", ""),
        resume_path=_place(resume) if resume not in ("", _NO_PATH) else None,
        annotation_file=variables.get("REPRIEVE_CHECKPOINT_REQUEST", "/podinfo/checkpoint-request"),
        address=variables.get("POD_IP", ""),
        pod_name=variables.get("POD_NAME", ""),
        is_first_process=ranks[:1] in ([], ["0"]),
    )


def _place(text: str) -> Path | str:
    return text if "://" in text else Path(text)
