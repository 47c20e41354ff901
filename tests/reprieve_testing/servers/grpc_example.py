"""The gRPC example as a local process, with stubs generated as its author would generate them."""

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
    """Run the example for the block; it saves to `training-0.json` in `folder`."""
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
