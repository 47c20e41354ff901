"""The published contract over gRPC, the operator's messages and the contract's own words are one."""

from google.protobuf.descriptor_pb2 import FileDescriptorProto

import stubs
from reprieve_operator import checkpoint_pb2 as wire
from reprieve_policy.contract import VERSION, AnswerState


def test_the_messages_are_those_of_the_published_file() -> None:
    published = stubs.describe().file[0]
    for message in published.message_type:
        for field in message.field:
            field.ClearField("json_name")  # follows from the name
    assert FileDescriptorProto.FromString(wire.DESCRIPTOR.serialized_pb) == published, "run `make proto`"


def test_an_answer_has_the_states_of_the_contract() -> None:
    named = {name.removeprefix("STATE_").lower() for name, number in wire.Answer.State.items() if number}
    assert named == set(AnswerState)


def test_the_package_is_named_by_the_contracts_version() -> None:
    assert wire.DESCRIPTOR.package == f"reprieve.checkpoint.v{VERSION}"
