"""Copies of a pod's record in etcd differ in what identifies a pod, and have the same length."""

import pytest

from bench.victims import bystanders, pods

MODELS = 10
UID = "4ad578a8-ae94-4209-b7f4-16209ae709f7"


def record(number: int) -> bytes:
    name = pods.bystander_name(number).encode()
    return b"k8s\0\x12\x0b" + name + b"*$" + UID.encode() + b"Z\x09trainer-5 " + name


@pytest.mark.parametrize("number", [MODELS, 17, 99_999])
def test_a_copy_has_a_name_and_a_uid_of_its_own_and_nothing_else(number: int) -> None:
    model = record(number % MODELS)
    copy = bystanders.renamed(model, number, MODELS)
    assert len(copy) == len(model)
    assert copy.count(pods.bystander_name(number).encode()) == 2
    assert copy.replace(f"{number:08x}".encode(), UID[:8].encode()) == record(number)


def test_no_two_copies_have_the_same_uid() -> None:
    copies = {
        bystanders.renamed(record(number % MODELS), number, MODELS)[19:55]
        for number in range(MODELS, 500)
    }
    assert len(copies) == 500 - MODELS
