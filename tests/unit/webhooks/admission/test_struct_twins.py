"""Twins of the core's dataclasses: what a decoder fills them with reads like the dataclass."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reprieve_policy.kube import objects
from reprieve_policy.kube.objects import OwnerReference, Resource
from reprieve_webhooks.admission import review, struct_twins

REVIEWS = sorted((Path(__file__).parents[3] / "contract" / "reviews").glob("*.json"))
TWIN = struct_twins.twin_of(Resource, kept=(OwnerReference,))


def read(value: Any) -> Any:
    """Return all that rules can read of a value, whatever its class."""
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        of = getattr(objects, type(value).__name__)
        return {field.name: read(getattr(value, field.name)) for field in dataclasses.fields(of)}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [read(each) for each in value]
    return value


@pytest.mark.parametrize("path", REVIEWS, ids=lambda path: path.stem)
def test_a_twin_reads_like_its_dataclass(path: Path):
    request = json.loads(path.read_text())["review"]["request"]
    found = [request[key] for key in ("object", "oldObject") if request[key] is not None]

    for document in found:
        body = json.dumps(document).encode()
        assert read(msgspec.json.decode(body, type=TWIN)) == read(
            msgspec.json.decode(body, type=Resource)
        )


def test_a_twin_of_an_empty_object_has_all_defaults():
    assert read(msgspec.json.decode(b"{}", type=TWIN)) == read(Resource())


MALFORMED = (
    b'{"metadata":{"labels":{"a":1}}}',
    b'{"spec":{"containers":[{"ports":[{"containerPort":"x"}]}]}}',
    b'{"spec":{"template":{"spec":{"template":{"spec":{"priority":"x"}}}}}}',
    b"[]",
)


@pytest.mark.parametrize("body", MALFORMED)
def test_a_twin_refuses_in_the_same_words(body: bytes):
    with pytest.raises(msgspec.ValidationError) as by_dataclass:
        msgspec.json.decode(body, type=Resource)
    with pytest.raises(msgspec.ValidationError) as by_twin:
        msgspec.json.decode(body, type=TWIN)

    assert str(by_twin.value) == str(by_dataclass.value)


def test_a_kept_class_has_no_twin():
    body = b'{"metadata":{"ownerReferences":[{"kind":"Job","controller":true}]}}'

    owners = msgspec.json.decode(body, type=TWIN).metadata.ownerReferences

    assert owners == [OwnerReference(kind="Job", controller=True)]


def test_reviews_decode_into_twins():
    request = review.parse(
        b'{"apiVersion":"admission.k8s.io/v1","request":{"uid":"1","operation":"CREATE",'
        b'"kind":{"kind":"Pod"},"object":{"spec":{"containers":[{}]}}}}'
    )

    assert isinstance(request, review.AdmissionRequest)
    assert isinstance(request.object, msgspec.Struct)
