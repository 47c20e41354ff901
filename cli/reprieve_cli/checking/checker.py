"""One object and what is known of the cluster, to findings with lines: the rules of admission, as at creation."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from operator import attrgetter

from reprieve_cli.manifests import field_paths
from reprieve_cli.manifests.documents import Document
from reprieve_cli.manifests.manifest_objects import ManifestObject, with_pod_templates
from reprieve_cli.output.finding import Finding, Level
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.admission.rules import RULES
from reprieve_policy.config.namespace import EXEMPT
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Resource
from reprieve_policy.verdict import Verdict, Violation

from .known_objects import POLICY_MAP, KnownObjects, MissingFactKind, MissingFacts


def check_manifest(
    subject: ManifestObject, document: Document, known_objects: KnownObjects
) -> list[Finding]:
    """Return what is wrong with one object, in the order of its lines."""
    subject = with_pod_templates(subject, known_objects.settings.template_kinds)
    found = [_violation(violation) for violation in subject.violations]
    if subject.resource is not None and _is_reviewed(subject):
        found += _check_by_rules(subject, subject.resource, known_objects)
    placed = (
        each.with_location(document.file, document.line_of(each.path), subject.name)
        for each in found
    )
    return sorted(placed, key=attrgetter("line"))


def check_resource(resource: Resource, facts: Facts) -> list[Finding]:
    """Return what rules say of an object where all facts are known."""
    verdict = decide_admission(resource, None, facts)
    warnings = [_warning(text, rule_of_warning(text, resource, facts)) for text in verdict.warnings]
    return [*map(_violation, verdict.violations), *warnings]


def rule_of_warning(text: str, resource: Resource, facts: Facts) -> str:
    """Return the id of the rule that warns so, empty for a violation that a Namespace turns into a warning."""
    ruled = (rule for rule in RULES if resource.kind in rule.kinds)
    return next(
        (rule.id for rule in ruled if text in rule.check(resource, None, facts).warnings), ""
    )


def _check_by_rules(
    subject: ManifestObject, resource: Resource, known_objects: KnownObjects
) -> Iterator[Finding]:
    facts, gaps = known_objects.strict_facts(subject)
    verdict = decide_admission(resource, None, facts)
    if verdict.is_empty:
        return
    doubts = _missing_facts_of(subject, resource, known_objects, gaps) if gaps else (lambda _: ())
    for violation in verdict.violations:
        missing = doubts(violation)
        yield (
            _not_checked(violation.path, violation.rule, missing)
            if missing
            else _violation(violation)
        )
    for text in verdict.warnings:
        rule, missing = rule_of_warning(text, resource, facts), doubts(text)
        yield (
            _not_checked(field_paths.path_in(text), rule, missing)
            if missing
            else _warning(text, rule)
        )


def _missing_facts_of(
    subject: ManifestObject, resource: Resource, known_objects: KnownObjects, gaps: MissingFacts
) -> Callable[[Violation | str], Sequence[str]]:
    """Return what says of something that was said which of the gaps, filled favourably, would unsay it."""

    @cache
    def when_filled(*kinds: MissingFactKind) -> Verdict:
        return decide_admission(resource, None, known_objects.lenient_facts(subject, *kinds))

    def missing(said: Violation | str) -> Sequence[str]:
        if _contains(when_filled(*MissingFactKind), said):
            return ()
        wanted = (
            MissingFactKind.PRIORITY_CLASS
            if _contains(when_filled(MissingFactKind.NAMESPACE), said)
            else MissingFactKind.NAMESPACE
        )
        return [name for name, gap in gaps.items() if gap is wanted]

    return missing


def _contains(verdict: Verdict, said: Violation | str) -> bool:
    return said in verdict.violations or said in verdict.warnings


def _is_reviewed(subject: ManifestObject) -> bool:
    """True where a webhook would be asked; a Namespace is in itself, as webhooks see it."""
    kind, namespace, name = subject.name
    return subject.name == POLICY_MAP or (name if kind == "Namespace" else namespace) not in EXEMPT


def _violation(violation: Violation) -> Finding:
    return Finding(
        level=Level.VIOLATION, path=violation.path, message=violation.message, rule=violation.rule
    )


def _warning(text: str, rule: str) -> Finding:
    path = field_paths.path_in(text)
    return Finding(
        level=Level.WARNING, path=path, message=text.removeprefix(f"{path}: "), rule=rule
    )


def _not_checked(path: str, rule: str, missing: Iterable[str]) -> Finding:
    message = f"not judged without {' and '.join(missing)} (see --policy)"
    return Finding(level=Level.WARNING, path=path, message=message, rule=rule)
