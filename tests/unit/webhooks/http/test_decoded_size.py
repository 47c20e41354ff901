"""What a review decodes to takes no more than what is reserved for it."""

import gc
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from reprieve_webhooks.admission import review
from reprieve_webhooks.guard import review as guard_review
from reprieve_webhooks.http import decoded_size

REVIEWS = Path(__file__).parents[3] / "contract" / "reviews"
MANY = 10_000


def sent(
    metadata: str = "{}", spec: str = "{}", *, user: str = "{}", deleted: bool = False
) -> bytes:
    operation, place = ("DELETE", "oldObject") if deleted else ("CREATE", "object")
    return (
        '{"apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":{"kind":"Pod"},'
        f'"operation":"{operation}","userInfo":{user},'
        f'"{place}":{{"metadata":{metadata},"spec":{spec}}}}}}}'
    ).encode()


def many(value: str) -> str:
    return f"[{','.join([value] * MANY)}]"


def entries(value: str) -> str:
    return "{" + ",".join(f'"{number:x}":{value}' for number in range(MANY)) + "}"


ONE, CHAIN, TABLES = '["b"]', "[" * 90 + "]" * 90, '{"a":' * 90 + "0" + "}" * 90
HOSTILE = {
    "empty containers": sent(spec=f'{{"containers":{many("{}")}}}'),
    "empty containers of a pod that is deleted": sent(
        spec=f'{{"containers":{many("{}")}}}', deleted=True
    ),
    "containers that request one thing each": sent(
        spec='{"containers":' + many('{"resources":{"requests":{"a":"b"}}}') + "}"
    ),
    "containers that request and limit": sent(
        spec='{"containers":'
        + many('{"resources":{"requests":{"a":"b"},"limits":{"a":"b"}}}')
        + "}"
    ),
    "empty terms": sent(
        spec='{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":'
        f'{{"nodeSelectorTerms":{many("{}")}}}}}}}}}'
    ),
    "short finalizers": sent(f'{{"finalizers":{many(chr(34) + "ab" + chr(34))}}}', deleted=True),
    "short labels": sent(f'{{"labels":{entries(chr(34) + "ab" + chr(34))}}}'),
    "lists in lists": sent(spec='{"disruptionMode":{"a":{"b":' + many(CHAIN) + "}}}"),
    "tables in tables": sent(spec='{"disruptionMode":{"a":{"b":' + many(TABLES) + "}}}"),
    "short owners": sent('{"ownerReferences":' + many('{"uid":"a","name":"b"}') + "}"),
    "claims of a user": sent(user=f'{{"extra":{entries(ONE)}}}'),
    "a wide character in a long text": sent('{"labels":{"a":"\U0001f600' + "y" * 200_000 + '"}}'),
    "a wide character that is escaped": sent(
        '{"labels":{"a":"\\ud83d\\ude00' + "y" * 200_000 + '"}}'
    ),
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_no_review_decodes_to_more_than_is_reserved_for_it(body: bytes) -> None:
    parse: Callable[[bytes], object] = guard_review.parse if b"DELETE" in body else review.parse
    parse(body)  # what is made once, and stays
    gc.collect()
    tracemalloc.start()
    try:
        request = parse(body)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not isinstance(request, review.Malformed), request
    assert 0 < taken <= decoded_size.most_bytes(body)


def test_what_is_not_counted_decodes_to_little() -> None:
    """Of all shapes, empty containers take the most for each of their bytes."""
    count = decoded_size.UNCOUNTED_BYTES // len("{},")
    body = sent(spec='{"containers":[' + ",".join(["{}"] * count) + "]}", deleted=True)
    tracemalloc.start()
    try:
        request = guard_review.parse(body)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert request is not None
    assert taken < decoded_size.SMALL_BYTES * 5 // 4


@pytest.mark.parametrize("path", sorted(REVIEWS.rglob("*.json")), ids=lambda path: path.stem)
def test_a_usual_review_has_no_place_to_wait_for(path: Path) -> None:
    assert decoded_size.most_bytes(path.read_bytes()) == 0


def test_a_text_takes_as_much_as_it_has_bytes_unless_it_may_be_wide() -> None:
    text = json.dumps({"a": "y" * 1_000_000}).encode()
    assert decoded_size.most_bytes(text) < 1_001_000
    assert decoded_size.most_bytes(text.replace(b"y", "é".encode(), 1)) > 4_000_000
