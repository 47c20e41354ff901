"""What the answer to a body must be: the same policy, asked in this process, about the same cluster.

It shares the reading and the rules with the server and nothing else: no socket, no process, no order of arrival. That the
rules are right is for the unit tests; here an answer must not depend on what else the server has been sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench import stub_api
from reprieve_policy.admission import decide_admission
from reprieve_policy.defaults import decide_defaults
from reprieve_runtime.api import JSON, Api, ApiError, Params
from reprieve_webhooks import answer, review
from reprieve_webhooks.cache import ClusterFacts
from reprieve_webhooks.review import Malformed

VALIDATE, MUTATE = "/validate", "/mutate"
OK, BAD_REQUEST, TOO_LARGE = 200, 400, 413


@dataclass(frozen=True)
class Expected:
    """The statuses that are right, and the body where there is one right answer to a review."""

    statuses: frozenset[int]
    body: bytes | None = None

    def complaint(self, status: int, body: bytes) -> str | None:
        """Return what is wrong with an answer, `None` where nothing is."""
        if status not in self.statuses:
            wanted = " or ".join(str(each) for each in sorted(self.statuses))
            return f"answered {status} instead of {wanted}: {body[:300]!r}"
        if self.body is not None and body != self.body:
            return f"answered {body[:600]!r} instead of {self.body[:600]!r}"
        return None


def one_of(*statuses: int) -> Expected:
    """Expect one of these, with any sentence."""
    return Expected(frozenset(statuses))


class _InProcessApi(Api):
    """Reads the same collections as the server does, without a socket."""

    def __init__(self, collections: stub_api.Collections) -> None:
        self._collections = collections

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,  # noqa: ARG002 - its collections need no selecting
        body: object = None,  # noqa: ARG002
        content_type: str = JSON,  # noqa: ARG002
        accept: str = JSON,  # noqa: ARG002
        timeout_seconds: float = 0.0,  # noqa: ARG002
    ) -> bytes:
        assert method == "GET", f"{method} {path}: nothing but reading is known here"
        found = stub_api.read(self._collections, path)
        if found is None:
            raise ApiError(404, "NotFound", path)
        return json.dumps(found).encode()


class Oracle:
    """Says what must be answered."""

    def __init__(self, collections: stub_api.Collections, max_review_bytes: int) -> None:
        # Its watches never run: whatever it knows, it asks for, and so never knows less than a watch.
        self._facts = ClusterFacts(
            _InProcessApi(collections), "reprieve-system", "reprieve-policy", **_UNCOUNTED, lookup_timeout_seconds=1.0
        )
        self._max_review_bytes = max_review_bytes

    async def expect(self, path: str, body: bytes) -> Expected:
        """Return what a body that arrives whole must be answered at a path."""
        if len(body) > self._max_review_bytes:
            return one_of(TOO_LARGE)
        request = review.parse(body)
        if isinstance(request, Malformed):
            return one_of(BAD_REQUEST)
        if not review.concerns_rules(request):
            return Expected(frozenset({OK}), answer.build_allowed(request.uid))
        if request.object is None:
            return one_of(BAD_REQUEST)
        facts = await self._facts.facts_for(request, request.object)
        old = request.old_object if request.operation == "UPDATE" else None
        if path == MUTATE:
            changes = decide_defaults(request.object, old, facts)
            return Expected(frozenset({OK}), answer.build_patched(request.uid, changes, request.object.metadata))
        verdict = decide_admission(request.object, old, facts)
        return Expected(frozenset({OK}), answer.build_verdict(request.uid, verdict))


def check_form(sent: bytes, answered: bytes) -> str | None:
    """Return what is wrong with the form of an answer to a review, `None` where nothing is; reads with `json` alone."""
    try:
        document = json.loads(answered)
        response: Mapping[str, Any] = document["response"]
        is_review = (document["kind"], document["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
        is_whole = is_review and isinstance(response["allowed"], bool)
        is_denied_well = response["allowed"] or response["status"]["code"] in (400, 403, 429)
    except (ValueError, KeyError, TypeError) as error:
        return f"no AdmissionReview ({error!r}): {answered[:300]!r}"
    if not (is_whole and is_denied_well):
        return f"no whole answer: {answered[:300]!r}"
    uid = _uid_of(sent)
    return None if uid in (None, response["uid"]) else f"the answer is to another review than {uid}: {answered[:300]!r}"


def _uid_of(sent: bytes) -> str | None:
    """Return the uid of a review as `json` reads it, `None` where it does not.

    What no rule reads, the server skips without looking at its letters or its depth: it reads more reviews than this.
    """
    try:
        uid: str = json.loads(sent)["request"]["uid"]
    except (ValueError, RecursionError):
        return None
    return uid


_UNCOUNTED: Any = {"count_policy_error": lambda: None}
