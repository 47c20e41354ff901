"""The published contract over gRPC agrees with the operator's messages and with the contract's
terms.
"""

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
def test_every_call_of_the_service_is_made_documented_and_answered_by_the_example(
    name: str, message: str
) -> None:
    made = Path(grpc_transport.__file__).read_text(encoding="utf-8")
    example = (EXAMPLES / "grpc" / "train.py").read_text(encoding="utf-8")
    answered = " ".join(example.split()).replace("( ", "(")
    assert f'"{name}"' in made
    assert f"def {name}(self, request: checkpoint_pb2.{message}," in answered
    assert f"`{name}`" in (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")


def test_the_package_is_named_by_the_contracts_version() -> None:
    assert wire.DESCRIPTOR.package == f"reprieve.checkpoint.v{VERSION}"
