"""The guard's reviews as kube-apiserver 1.37.1 sent them: what it reads of them."""

import json
from pathlib import Path
from typing import Any

from reprieve_webhooks.guard import review
from reprieve_webhooks.guard.review import GuardRequest

REVIEWS = Path(__file__).parents[1] / "reviews"


def read(name: str, **changes: Any) -> GuardRequest:
    sent = json.loads((REVIEWS / f"{name}.json").read_text())["review"]
    sent["request"] |= changes
    request = review.parse(json.dumps(sent).encode())
    assert isinstance(request, GuardRequest)
    return request


def test_a_deletion_holds_the_pod_as_it_was() -> None:
    request = read("pod-deleted")
    assert (request.is_deletion, request.is_eviction, request.is_dry_run) == (True, False, False)
    assert request.old_object is not None
    assert request.old_object.uid
    assert request.old_object.metadata.resourceVersion
    assert request.user_info.username


def test_an_eviction_names_the_pod_and_states_whether_it_is_a_dry_run() -> None:
    request = read("pod-evicted")
    assert (request.is_deletion, request.is_eviction, request.is_dry_run) == (False, True, False)
    assert (request.namespace, request.name) == ("rec", "train")
    assert read("pod-evicted", dryRun=True).is_dry_run
    assert read("pod-evicted", object={"deleteOptions": {"dryRun": ["All"]}}).is_dry_run
    assert not read("pod-evicted", object={"deleteOptions": {"dryRun": None}}).is_dry_run


def test_no_other_review_counts_as_either() -> None:
    for name in ("pod-created", "pod-labelled", "namespace-created"):
        request = read(name)
        assert (request.is_deletion, request.is_eviction) == (False, False)
