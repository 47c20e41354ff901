"""`make proto`: write the operator's messages from the published gRPC contract in `proto/`.

Only the messages are generated: methods are called by name, without a generated client.
"""

import shutil
import sys
import tempfile
from importlib import resources
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "proto"
SOURCE = SOURCES / "reprieve/checkpoint/v1/checkpoint.proto"
TARGET = ROOT / "operator/reprieve_operator/checkpointing"
WELL_KNOWN = resources.files("grpc_tools") / "_proto"


def main() -> None:
    """Write the stubs anew."""
    with tempfile.TemporaryDirectory() as folder:
        compile_into(f"--python_out={folder}", f"--pyi_out={folder}")
        for stub in Path(folder).rglob("checkpoint_pb2.py*"):
            shutil.copy(stub, TARGET)


def describe() -> FileDescriptorSet:
    """Return what the published file declares, without its imports."""
    with tempfile.NamedTemporaryFile() as described:
        compile_into(f"--descriptor_set_out={described.name}")
        return FileDescriptorSet.FromString(Path(described.name).read_bytes())


def compile_into(*outputs: str) -> None:
    """Run protoc; its messages go to standard error."""
    arguments = ["protoc", f"-I{SOURCES}", f"-I{WELL_KNOWN}", *outputs, str(SOURCE)]
    if protoc.main(arguments) != 0:
        sys.exit(f"{SOURCE}: protoc refused it")


if __name__ == "__main__":
    main()
