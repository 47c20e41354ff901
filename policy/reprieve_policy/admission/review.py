"""The decision on one review: all rules, only what got worse, as strictly as the Namespace says."""

from collections.abc import Mapping
from dataclasses import replace

from reprieve_policy.config.namespace import OFF, WARN
from reprieve_policy.facts import Facts
from reprieve_policy.kube import controllers
from reprieve_policy.kube.objects import Resource, is_being_deleted_unchanged
from reprieve_policy.verdict import NO_FINDINGS, Verdict, Violation, ViolationKind

from .rules import RULES, Rule

MAX_MESSAGES = 100
"""The most violations, and the most warnings, in one answer."""
TOO_LARGE = Violation(
    "metadata",
    ViolationKind.FORBIDDEN,
    None,
    "the object is too large to be checked; it must have fewer than 75,000 values, and less than "
    "4 MiB as JSON, in which each <, > and & takes six bytes",
)

_RULES_OF: Mapping[str, tuple[Rule, ...]] = {
    kind: tuple(rule for rule in RULES if kind in rule.kinds)
    for kind in frozenset().union(*(rule.kinds for rule in RULES))
}


def decide_admission(
    resource: Resource, old: Resource | None, facts: Facts, *, user: str = ""
) -> Verdict:
    """Return the findings of all rules.

    `old` is the object before an update, `None` at creation; `user` is the author of the request.

    Never refuses an update that does not make an existing object worse, and never one of an object
    that is being deleted and keeps its templates: without this, a webhook keeps a controller from
    removing its finalizer, and the object stays for ever. A pod that a controller of Kubernetes
    makes from a template was reviewed when the template was written: without this, running
    workloads would get no more pods from the day on which rules are installed, or become stricter.
    """
    if facts.namespace.enforcement == OFF or is_being_deleted_unchanged(resource, old):
        return NO_FINDINGS
    verdict = _run(resource, old, facts)
    if old is not None and not verdict.is_allowed:
        verdict = _ratchet(verdict, old, facts)
    return _bounded(_as_strict(verdict, resource, old, facts, user=user))


def decide_unchecked(
    resource: Resource, old: Resource | None, facts: Facts, *, user: str = ""
) -> Verdict:
    """Return the verdict on an object that is too large for the rules to be checked.

    The caller has made sure that the request creates it, or changes what rules read of it.
    """
    if facts.namespace.enforcement == OFF:
        return NO_FINDINGS
    return _as_strict(Verdict((TOO_LARGE,)), resource, old, facts, user=user)


def _as_strict(
    verdict: Verdict, resource: Resource, old: Resource | None, facts: Facts, *, user: str
) -> Verdict:
    is_warned_only = facts.namespace.enforcement == WARN or (
        old is None and not verdict.is_allowed and controllers.is_made_from_template(resource, user)
    )
    return _as_warnings(verdict) if is_warned_only else verdict


def _bounded(verdict: Verdict) -> Verdict:
    """Leave out findings beyond the limit. Without this, a 1 MB object has a 50 MB answer."""
    left = max(len(verdict.violations), len(verdict.warnings)) - MAX_MESSAGES
    if left <= 0:
        return verdict
    more = f"more findings than can be shown: {left} are left out"
    return replace(
        verdict,
        violations=verdict.violations[:MAX_MESSAGES],
        warnings=(more, *verdict.warnings[:MAX_MESSAGES]),
    )


def _run(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:
    findings: list[Verdict] = []
    for rule in _RULES_OF.get(resource.kind, ()):
        verdict = rule.check(resource, old, facts)
        # Most objects break no rule: merging empty verdicts would take as long as all the rules
        # together.
        if verdict is not NO_FINDINGS and not verdict.is_empty:
            findings.append(_named(rule, verdict))
    return Verdict.merged(findings) if findings else NO_FINDINGS


def _named(rule: Rule, verdict: Verdict) -> Verdict:
    violations = tuple(replace(violation, rule=rule.id) for violation in verdict.violations)
    return replace(verdict, violations=violations)


def _ratchet(verdict: Verdict, old: Resource, facts: Facts) -> Verdict:
    # Without this, the old object would be judged as a new claim. Where its own pods fill the
    # quota, it would break the rule too, and the new object's violation would pass as known.
    known = set(_run(old, None, replace(facts, missing_permissions=frozenset())).violations)
    worse = tuple(violation for violation in verdict.violations if violation not in known)
    return replace(verdict, violations=worse)


def _as_warnings(verdict: Verdict) -> Verdict:
    warnings = tuple(str(violation) for violation in verdict.violations)
    return replace(verdict, violations=(), warnings=warnings + verdict.warnings)
