"""Reviews as kube-apiserver 1.37.1 sent them, and both responses; some have one changed field.

A file holds the review and both responses, with the JSON patch decoded for the reader. No
Namespace, no PriorityClass and no ConfigMap is known here: all responses follow from the defaults.
"""

import json
from pathlib import Path
from typing import Any

import jsonpatch
import pytest

from reprieve_policy.facts import Facts
from reprieve_testing.servers.reviews import FixedFacts, patch_of
from reprieve_webhooks.admission import handlers, review
from reprieve_webhooks.admission.handlers import AdmissionResponse
from reprieve_webhooks.admission.review import AdmissionRequest

RECORDED = {
    path.stem: path.read_bytes()
    for path in sorted((Path(__file__).parents[1] / "reviews").glob("*.json"))
}
HANDLERS = {"mutate": handlers.mutate, "validate": handlers.validate}


@pytest.mark.parametrize("webhook", HANDLERS)
@pytest.mark.parametrize("recorded", RECORDED.values(), ids=RECORDED.keys())
async def test_a_recorded_review_gets_the_recorded_response(recorded: bytes, webhook: str):
    document = json.loads(recorded)

    assert await _answer(webhook, document["review"]) == document[webhook]


@pytest.mark.parametrize("recorded", RECORDED.values(), ids=RECORDED.keys())
async def test_a_second_mutation_changes_nothing(recorded: bytes):
    sent = json.loads(recorded)["review"]
    patch = (await _answer("mutate", sent)).get("patch", [])
    sent["request"]["object"] = (
        jsonpatch.apply_patch(sent["request"]["object"] or {}, patch) or None
    )

    assert "patch" not in await _answer("mutate", sent)


def test_every_kind_with_rules_at_creation_and_update_was_recorded():
    requests = [json.loads(text)["review"]["request"] for text in RECORDED.values()]
    seen = {(request["operation"], request["kind"]["kind"]) for request in requests}

    assert {
        ("CREATE", kind) for kind in ("Pod", "Deployment", "Job", "PriorityClass", "Namespace")
    } <= seen
    assert {
        ("UPDATE", "Pod"),
        ("UPDATE", "Namespace"),
        ("DELETE", "Pod"),
        ("CREATE", "Eviction"),
    } <= seen


async def _answer(webhook: str, sent: dict[str, Any]) -> dict[str, Any]:
    request = review.parse(json.dumps(sent).encode())
    assert isinstance(request, AdmissionRequest)
    answer = await HANDLERS[webhook](request, FixedFacts(Facts()))
    assert isinstance(answer, AdmissionResponse)
    response: dict[str, Any] = json.loads(answer.body)["response"]
    patch = patch_of(response)
    return response | ({"patch": patch} if patch else {})
