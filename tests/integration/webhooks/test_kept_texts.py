"""What a review states is not kept at any length, wherever it stands.

The webhooks remember gangs, jobs, owners, keys and answers, each a bounded number of them. A sender
chooses nearly every text of a review, and an API server accepts most of them at any length, at the
latest in a dry run. Each text is replaced by a long one in turn. Then all that the facts, the
answers and the caches of functions refer to is searched for it.
"""

import asyncio
import copy
import gc
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

import msgspec
import pytest

from reprieve_policy import keys
from reprieve_policy.admission.key_places import PODS as POD_KEYS
from reprieve_policy.gangs.dialects import GANG_FIELDS
from reprieve_testing.servers.reviews import Document, a_pod, a_review
from reprieve_testing.servers.stub_api import stub_api, until
from reprieve_webhooks.admission import handlers, remembered_pods, review
from reprieve_webhooks.admission.remembered_pods import RememberedPods
from reprieve_webhooks.admission.review import AdmissionRequest
from reprieve_webhooks.facts.cluster_facts import ClusterFacts

LONGEST_KEPT = remembered_pods.MAX_BYTES
"""Of any text; the answer to a pod is kept with what its template states."""
PADDING = "~" * 100_000
WHOLE_SECONDS = 600.0
"""No call of these tests may end for the time it takes."""

Place = tuple[str | int, ...]
"""The keys and indexes that lead to a text; of a key of a map, the last one is `IS_KEY`."""
IS_KEY = "(key)"
GANG = "a-gang"
"""Another one in each review: one that is named again would replace what is known of it."""


class Sender(NamedTuple):
    """A replica of the webhooks, as the sender of reviews sees it."""

    facts: ClusterFacts
    remembered: RememberedPods

    async def send(self, document: Document, gang: str = GANG) -> None:
        """Send a review to both webhooks, twice: only then an answer is remembered."""
        body = json.dumps(document).replace(GANG, gang).encode()
        for handle in (handlers.mutate, handlers.validate) * 2:
            request = review.parse(body)
            if isinstance(request, AdmissionRequest):
                await handle(request, self.facts, self.remembered)


OWNER = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "name": "train",
    "uid": "of-train",
    "controller": True,
}
JOB_SET = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {
        "name": "train",
        "namespace": "team",
        "uid": "of-set",
        "labels": {keys.LEDGER: "true"},
        "annotations": {keys.LEDGER: "{}"},
    },
}
QUOTA = {
    "metadata": {"name": "team", "namespace": "team"},
    "spec": {"min": {"cpu": "4"}, "max": {"cpu": "4"}},
}
STORED = {
    "/api/v1/namespaces": {"team": {"metadata": {"name": "team"}}},
    "/api/v1/namespaces/team/pods": {},
    "/apis/jobset.x-k8s.io/v1alpha2/jobsets": {"team/train": JOB_SET},
    "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas": {"team/team": QUOTA},
}


@asynccontextmanager
async def running_sender(directory: Path) -> AsyncIterator[Sender]:
    async with stub_api(directory, collections=STORED) as (stub, api):
        facts = ClusterFacts(
            api, "reprieve-system", "reprieve-policy", lookup_timeout_seconds=WHOLE_SECONDS
        )
        running = asyncio.create_task(facts.run())
        try:
            stub.lists_released.set()
            await until(lambda: stub.open_watches == len(facts.watches()))
            # Without this, a slow machine would have what is kept of a job dropped.
            facts._job_pods._monotonic = lambda: 0.0
            yield Sender(facts, RememberedPods(facts))
        finally:
            running.cancel()
            await asyncio.wait([running])


def a_team_pod(**metadata: Any) -> Document:
    pod = a_pod()
    pod["metadata"] |= {"namespace": "team", "uid": "of-pod", "generateName": "train-", **metadata}
    pod["spec"] |= {"priorityClassName": "", "nodeName": "", "nodeSelector": {"zone": "a"}}
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    return pod


def reviewed(new: Document, **changes: Any) -> Document:
    user = {"username": "someone", "uid": "of-user", "groups": ["a"], "extra": {"scope": ["b"]}}
    return a_review(new, userInfo=user, **changes)


def custom(template: Document) -> Document:
    kind = {"group": "kubeflow.org", "version": "v1", "kind": "PyTorchJob"}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "team", "uid": "of-custom"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"template": template}}},
    }
    return reviewed(job, kind=kind)


GANG_KEYS = {
    holder: {field.key for field in GANG_FIELDS if field.holder == holder}
    for holder in ("labels", "annotations")
}
COUNTED = {keys.POD_GROUP: "job", keys.QUOTA_NAME: "team", keys.PREEMPTIBLE: "false"}
TEMPLATE = {
    "metadata": {"labels": {"app": "train"}, "annotations": {"note": "a"}},
    "spec": a_team_pod()["spec"],
}
REVIEWS = {
    "a pod": reviewed(a_team_pod(labels={"app": "train"}, annotations={"note": "a"})),
    "a pod with all keys that are read": reviewed(
        a_team_pod(
            labels=dict.fromkeys(sorted(POD_KEYS.labels | GANG_KEYS["labels"]), "1"),
            annotations=dict.fromkeys(sorted(POD_KEYS.annotations | GANG_KEYS["annotations"]), "1"),
        )
    ),
    "a pod of an owner": reviewed(a_team_pod(ownerReferences=[OWNER]), dryRun=True),
    "a pod of a gang": reviewed(
        a_team_pod(labels={keys.POD_GROUP: GANG}, annotations={keys.DISRUPTION_MODE: "pod"})
    ),
    "a pod of a gang that no label selects": reviewed(
        a_team_pod(annotations={keys.VOLCANO_GROUP: GANG})
    ),
    "a pod of a job that a quota counts": reviewed(a_team_pod(labels=COUNTED)),
    "the same pod without a name": reviewed(
        {**a_team_pod(), "metadata": {"namespace": "team", "uid": "of-pod", "labels": COUNTED}}
    ),
    "a custom kind": custom(TEMPLATE),
    "a Job": reviewed(
        {
            "kind": "Job",
            "apiVersion": "batch/v1",
            "metadata": {"name": "train", "namespace": "team", "uid": "of-job"},
            "spec": {"template": TEMPLATE},
        }
    ),
}


def places_in(value: object, before: Place = ()) -> Iterator[Place]:
    """Yield the place of every text, and of every key of a map that a user names."""
    if isinstance(value, str):
        yield before
    entries = value.items() if isinstance(value, dict) else ()
    for key, each in [*entries, *(enumerate(value) if isinstance(value, list) else ())]:
        if isinstance(key, str):
            yield (*before, key, IS_KEY)
        yield from places_in(each, (*before, key))


def with_text(document: Document, place: Place, text: str) -> Document:
    """Return the document with this text in this place."""
    changed = copy.deepcopy(document)
    holder: Any = changed
    *path, last = place[:-1] if place[-1] == IS_KEY else place
    for step in path:
        holder = holder[step]
    if place[-1] == IS_KEY:
        holder[text] = holder.pop(last)
    else:
        holder[last] = text
    return changed


def caches() -> list[Any]:
    """Return the caches of Reprieve's functions."""
    modules = [module for name, module in sys.modules.items() if name.startswith("reprieve_")]
    holders = [*modules, *(each for module in modules for each in _classes_in(module))]
    found = [each for holder in holders for each in vars(holder).values() if _is_cache(each)]
    assert found
    return found


def _classes_in(module: ModuleType) -> list[type]:
    return [each for each in vars(module).values() if isinstance(each, type)]


def _is_cache(value: object) -> bool:
    return hasattr(value, "cache_info") and callable(value)


def kept_texts(*roots: object) -> Iterator[str]:
    """Yield the long texts that these objects refer to, but not what the code itself holds."""
    seen, left = set[int](), list(roots)
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, _CODE):
            continue
        seen.add(id(each))
        if isinstance(each, str | bytes) and len(each) > LONGEST_KEPT:
            yield each if isinstance(each, str) else each.decode(errors="replace")
        left += gc.get_referents(each)
        # What the garbage collector does not visit: keys that are texts, and the fields of most
        # structs.
        if isinstance(each, dict):
            left += each.keys()
        elif isinstance(each, msgspec.Struct):
            left += [getattr(each, name) for name in each.__struct_fields__]


_CODE = (ModuleType, type, FunctionType, BuiltinFunctionType, asyncio.AbstractEventLoop)


@pytest.mark.parametrize("document", REVIEWS.values(), ids=REVIEWS)
async def test_no_long_text_of_a_review_is_kept(tmp_path: Path, document: Document) -> None:
    places = dict(enumerate(places_in(document)))
    for cache in caches():
        cache.cache_clear()
    async with running_sender(tmp_path) as sender:
        for number, place in places.items():
            await sender.send(with_text(document, place, f"{number}{PADDING}"), f"gang-{number}")
        # Only the last pod may be kept as it is.
        await sender.send(REVIEWS["a pod"])
        kept = [text for text in kept_texts(*sender, *caches()) if PADDING in text]
    assert {places.get(int(text.partition("~")[0]), text[:40]) for text in kept} == set()
