"""Handles a review: the request, the facts that its rules need, and their verdict as a response.

No HTTP here: that is `server`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

import msgspec

from reprieve_policy.admission.defaults import decide_defaults
from reprieve_policy.admission.review import decide_admission, decide_unchecked
from reprieve_policy.facts import Facts, GangTraits, JobRequests
from reprieve_policy.kube.objects import Resource
from reprieve_policy.kube.template_kinds import TemplateKinds
from reprieve_policy.verdict import NO_FINDINGS, Change, Verdict

from . import response, review
from .remembered_pods import Key, RememberedPods
from .review import AdmissionRequest, Malformed, UncheckedRequest

K = TypeVar("K")
"""What is remembered: defaults or a verdict."""


class FactsSource(Protocol):
    """Facts of the cluster for one request."""

    @property
    def template_kinds(self) -> TemplateKinds:
        """The kinds of other projects that have rules, and the paths of their pod templates."""

    async def facts_for(self, request: AdmissionRequest, resource: Resource) -> Facts:
        """Return the facts for the rules; raises where one cannot be known now."""

    async def gang_traits(
        self, request: AdmissionRequest, resource: Resource, facts: Facts
    ) -> GangTraits | None:
        """Return what the other members of a new pod's gang state; never raises.

        `None` if there are none, or if they cannot be read now.
        """

    async def job_requests(
        self, request: AdmissionRequest, resource: Resource, facts: Facts
    ) -> JobRequests:
        """Return what the other pods of a bare pod's job request; never raises.

        Nothing if no quota counts them, or if they cannot be read now.
        """


class AdmissionResponse(msgspec.Struct, frozen=True, gc=False):
    """The response to a review, and the labels to count it by."""

    body: bytes
    kind: str
    outcome: str


_DECIDED = AdmissionResponse, Malformed
"""A tuple, because `isinstance` would make a union anew for each review."""
ALLOWED, DENIED, PATCHED, WARNED, SKIPPED = "allowed", "denied", "patched", "warned", "skipped"


async def mutate(
    request: AdmissionRequest, source: FactsSource, remembered: RememberedPods | None = None
) -> AdmissionResponse | Malformed:
    """Fill in defaults."""
    resource = _object_to_check(request)
    if isinstance(resource, _DECIDED):
        return resource
    if request.is_unchecked:
        # Refused here too if it is new: the API server may drop what is large before `validate` is
        # called, such as a status, and the object would get no defaults.
        is_new = request.old_object is None
        verdict = await _verdict_unchecked(request, resource, source) if is_new else NO_FINDINGS
        return _verdict_response(request, resource, verdict)
    key = None if remembered is None else remembered.key_of(request, resource)
    if remembered is None or key is None:
        changes, _ = await _defaults(request, resource, source)
        return _patched(request, resource, changes)
    known = remembered.defaults_of(key, resource)
    if known is None:
        version = remembered.version
        known, facts = await _defaults(request, resource, source)
        remembered.add_defaults(key, resource, facts, version, known)
    return _patched(request, resource, known)


async def _defaults(
    request: AdmissionRequest, resource: Resource, source: FactsSource
) -> tuple[tuple[Change, ...], Facts]:
    facts = await source.facts_for(request, resource)
    return decide_defaults(resource, _old_object(request), facts), facts


def mutate_now(
    request: AdmissionRequest, remembered: RememberedPods
) -> AdmissionResponse | Malformed | None:
    """Fill in defaults if these are remembered."""
    return _answer_now(request, remembered, remembered.defaults_of, _patched)


def _patched(
    request: AdmissionRequest, resource: Resource, changes: tuple[Change, ...]
) -> AdmissionResponse:
    outcome = PATCHED if changes else ALLOWED
    return AdmissionResponse(
        response.build_patched(request.uid, changes, resource), resource.kind, outcome
    )


async def validate(
    request: AdmissionRequest, source: FactsSource, remembered: RememberedPods | None = None
) -> AdmissionResponse | Malformed:
    """Allow or refuse."""
    resource = _object_to_check(request)
    if isinstance(resource, _DECIDED):
        return resource
    if request.is_unchecked:
        verdict = await _verdict_unchecked(request, resource, source)
        return _verdict_response(request, resource, verdict)
    key = None if remembered is None else remembered.key_of(request, resource)
    if remembered is None or key is None:
        verdict, _ = await _verdict(request, resource, source)
        return _verdict_response(request, resource, verdict)
    known = remembered.verdict_of(key)
    if known is None:
        version = remembered.version
        known, facts = await _verdict(request, resource, source)
        remembered.add_verdict(key, resource, facts, version, known)
    return _verdict_response(request, resource, known)


def validate_now(
    request: AdmissionRequest, remembered: RememberedPods
) -> AdmissionResponse | Malformed | None:
    """Allow or refuse if the verdict is remembered."""
    return _answer_now(
        request, remembered, lambda key, _: remembered.verdict_of(key), _verdict_response
    )


async def _verdict(
    request: AdmissionRequest, resource: Resource, source: FactsSource
) -> tuple[Verdict, Facts]:
    facts = await source.facts_for(request, resource)
    # Only here, after all mutating webhooks, is a pod as it will be stored.
    traits = await source.gang_traits(request, resource, facts)
    facts = facts if traits is None else replace(facts, gang_traits=traits)
    requests = await source.job_requests(request, resource, facts)
    facts = replace(facts, job_requests=requests) if requests.requested else facts
    user = request.user_info.username
    return decide_admission(resource, _old_object(request), facts, user=user), facts


async def _verdict_unchecked(
    request: AdmissionRequest, resource: Resource, source: FactsSource
) -> Verdict:
    if isinstance(request, UncheckedRequest) and not request.is_changed:
        return NO_FINDINGS
    facts = await source.facts_for(request, resource)
    old, user = _old_object(request), request.user_info.username
    return decide_unchecked(resource, old, facts, user=user)


def _verdict_response(
    request: AdmissionRequest, resource: Resource, verdict: Verdict
) -> AdmissionResponse:
    if verdict.is_empty:
        return AdmissionResponse(response.build_allowed(request.uid), resource.kind, ALLOWED)
    allowed = WARNED if verdict.warnings else ALLOWED
    outcome = allowed if verdict.is_allowed else DENIED
    return AdmissionResponse(response.build_verdict(request.uid, verdict), resource.kind, outcome)


def _answer_now(
    request: AdmissionRequest,
    remembered: RememberedPods,
    find: Callable[[Key, Resource], K | None],
    respond: Callable[[AdmissionRequest, Resource, K], AdmissionResponse],
) -> AdmissionResponse | Malformed | None:
    resource = _object_to_check(request)
    if isinstance(resource, _DECIDED):
        return resource
    if request.is_unchecked:
        return None
    key = remembered.key_of(request, resource)
    known = None if key is None else find(key, resource)
    return None if known is None else respond(request, resource, known)


def _object_to_check(request: AdmissionRequest) -> Resource | AdmissionResponse | Malformed:
    """Return the object to check, or the response if no rule concerns it."""
    if not review.has_rules(request):
        return AdmissionResponse(response.build_allowed(request.uid), "other", SKIPPED)
    if request.object is None:
        return Malformed(
            f"request.object must not be null where the operation is {request.operation}"
        )
    if request.operation == "UPDATE" and request.old_object is None:
        # Checked as new, an object that is invalid already would be refused at any change.
        return Malformed("request.oldObject must not be null where the operation is UPDATE")
    return request.object


def _old_object(request: AdmissionRequest) -> Resource | None:
    return request.old_object if request.operation == "UPDATE" else None
