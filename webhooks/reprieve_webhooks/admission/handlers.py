"""What a review means: the request, the facts that its rules need, and their verdict as an answer. No HTTP here."""

from dataclasses import dataclass, replace
from typing import Protocol

from reprieve_policy.admission.defaults import decide_defaults
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Resource
from reprieve_policy.kube.template_kinds import TemplateKinds
from reprieve_policy.traits import Traits

from . import response, review
from .review import Malformed, Request


class FactsSource(Protocol):
    """Cluster knowledge for one request."""

    @property
    def template_kinds(self) -> TemplateKinds:
        """The kinds of other projects that are read, and where their pod templates stand."""

    async def facts_for(self, request: Request, resource: Resource) -> Facts:
        """Return what rules may know; never a guess: raises where it cannot be known now."""

    async def gang_of(self, request: Request, resource: Resource, facts: Facts) -> Traits | None:
        """Return what the rest of a new pod's gang says, `None` where there is none or nobody knows; never raises."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A review's answer, and what to count it as."""

    body: bytes
    kind: str
    outcome: str


ALLOWED, DENIED, PATCHED, WARNED, SKIPPED = "allowed", "denied", "patched", "warned", "skipped"


async def mutate(request: Request, source: FactsSource) -> Answer | Malformed:
    """Fill in what nobody said."""
    resource = _subject(request)
    if not isinstance(resource, Resource):
        return resource
    facts = await source.facts_for(request, resource)
    changes = decide_defaults(resource, _before(request), facts)
    outcome = PATCHED if changes else ALLOWED
    return Answer(response.build_patched(request.uid, changes, resource), resource.kind, outcome)


async def validate(request: Request, source: FactsSource) -> Answer | Malformed:
    """Allow or refuse."""
    resource = _subject(request)
    if not isinstance(resource, Resource):
        return resource
    facts = await source.facts_for(request, resource)
    # Only here is a pod as it will be stored: whoever changes it has had his say.
    rest = await source.gang_of(request, resource, facts)
    facts = facts if rest is None else replace(facts, gang=rest)
    verdict = decide_admission(resource, _before(request), facts, user=request.user_info.username)
    allowed = WARNED if verdict.warnings else ALLOWED
    outcome = allowed if verdict.is_allowed else DENIED
    return Answer(response.build_verdict(request.uid, verdict), resource.kind, outcome)


def _subject(request: Request) -> Resource | Answer | Malformed:
    """Return the object to judge, or at once the answer where no rule concerns it."""
    if not review.concerns_rules(request):
        return Answer(response.build_allowed(request.uid), "other", SKIPPED)
    if request.object is None:
        return Malformed(f"request.object must not be null where the operation is {request.operation}")
    if request.operation == "UPDATE" and request.old_object is None:
        # Judged as new, an object that is bad already would be refused for whatever is changed of it.
        return Malformed("request.oldObject must not be null where the operation is UPDATE")
    return request.object


def _before(request: Request) -> Resource | None:
    return request.old_object if request.operation == "UPDATE" else None
