"""The example in gRPC as a local process, with the stubs that its author would have made."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import stubs
from reprieve_testing.manifests import EXAMPLES


@contextmanager
def training(folder: Path, address: str, port: int) -> Iterator[subprocess.Popen[str]]:
    """Run it for the block; `training-0.json` in `folder` is what it saves."""
    stubs.compile_into(f"--python_out={folder}", f"--grpc_python_out={folder}")
    here = {
        "POD_IP": address,
        "PORT": str(port),
        "CHECKPOINTS": str(folder),
        "POD_NAME": "training-0",
    }
    process = subprocess.Popen(
        [sys.executable, EXAMPLES / "grpc" / "train.py"],
        env={**os.environ, **here, "PYTHONPATH": str(folder)},
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
