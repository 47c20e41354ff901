"""The published gRPC contract matches the operator's messages, the example and the page."""

import re
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

import stubs
from reprieve_operator.checkpointing import checkpoint_pb2 as wire
from reprieve_operator.checkpointing import grpc_transport
from reprieve_policy.checkpointing.contract import VERSION, AnswerState
from reprieve_testing.manifests import EXAMPLES, ROOT


def test_the_messages_are_those_of_the_published_file() -> None:
    published = stubs.describe().file[0]
    for message in published.message_type:
        for field in message.field:
            field.ClearField("json_name")  # follows from the name
    assert FileDescriptorProto.FromString(wire.DESCRIPTOR.serialized_pb) == published, (
        "run `make proto`"
    )


def test_an_answer_has_the_states_of_the_contract() -> None:
    named = {
        name.removeprefix("STATE_").lower() for name, number in wire.Answer.State.items() if number
    }
    assert named == set(AnswerState)


CALLS = [
    (call.name, call.input_type.rpartition(".")[2])
    for call in stubs.describe().file[0].service[0].method
]


@pytest.mark.parametrize(("name", "message"), CALLS, ids=[name for name, _ in CALLS])
def test_every_method_is_called_by_the_operator_in_the_example_and_documented(
    name: str, message: str
) -> None:
    made = Path(grpc_transport.__file__).read_text(encoding="utf-8")
    answered = (EXAMPLES / "grpc" / "train.py").read_text(encoding="utf-8")
    assert f'"{name}"' in made
    assert re.search(rf"def {name}\([^,]*self,\s+request: checkpoint_pb2\.{message},", answered)
    assert f"`{name}`" in (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")


def test_the_package_is_named_by_the_contracts_version() -> None:
    assert wire.DESCRIPTOR.package == f"reprieve.checkpoint.v{VERSION}"
