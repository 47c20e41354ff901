"""Applies the rules of admission to one object, as at its creation; the findings have lines."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from operator import attrgetter

from reprieve_cli.manifests import field_paths
from reprieve_cli.manifests.documents import HELM_ACTION, HELM_HINT, Document
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
    item: ManifestObject, document: Document, known_objects: KnownObjects
) -> list[Finding]:
    """Return the findings about one object, in the order of its lines."""
    item = with_pod_templates(item, known_objects.settings.template_kinds, document.written)
    by_rules: list[Finding] = []
    if item.resource is not None and _is_reviewed(item):
        by_rules = _strictest(
            found
            for each in known_objects.readings(item)
            for found in _check_by_rules(item, item.resource, each)
        )
    located = (
        _with_hint(each).with_location(document.file, document.line_of(each.path), item.name)
        for each in (*_form_findings(item, by_rules), *by_rules)
    )
    return sorted(located, key=attrgetter("line"))


def _with_hint(finding: Finding) -> Finding:
    """Ask for the rendered text where a value is an action of a template: in quotes, it parses."""
    is_rendered = HELM_ACTION.search(finding.message) is None
    return finding if is_rendered else replace(finding, message=finding.message + HELM_HINT)


def _strictest(findings: Iterable[Finding]) -> list[Finding]:
    """Return each finding once; a violation under one policy is no warning under another."""
    found = list(dict.fromkeys(findings))
    refused = {each.text for each in found if each.level is Level.VIOLATION}
    return [each for each in found if each.level is Level.VIOLATION or each.text not in refused]


def _form_findings(item: ManifestObject, by_rules: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the violations of the form; a value that a rule refuses is not suggested."""
    refused = {each.path for each in by_rules if each.level is Level.VIOLATION}
    for violation in item.violations:
        is_refused = violation.path in refused
        detail = violation.detail.partition(': "')[0] if is_refused else violation.detail
        yield _violation(replace(violation, detail=detail))


def check_resource(resource: Resource, facts: Facts) -> list[Finding]:
    """Return the findings about an object when all facts are known."""
    verdict = decide_admission(resource, None, facts)
    warnings = [_warning(text, rule_of_warning(text, resource, facts)) for text in verdict.warnings]
    return [*map(_violation, verdict.violations), *warnings]


def rule_of_warning(text: str, resource: Resource, facts: Facts) -> str:
    """Return the id of the rule that gave a warning.

    Empty for a violation that the Namespace's enforcement turned into a warning.
    """
    rules = (rule for rule in RULES if resource.kind in rule.kinds)
    return next(
        (rule.id for rule in rules if text in rule.check(resource, None, facts).warnings), ""
    )


def _check_by_rules(
    item: ManifestObject, resource: Resource, known_objects: KnownObjects
) -> Iterator[Finding]:
    facts, missing_facts = known_objects.strict_facts(item)
    verdict = decide_admission(resource, None, facts)
    if verdict.is_empty:
        return
    missing_for = (
        _missing_facts_of(item, resource, known_objects, missing_facts)
        if missing_facts
        else (lambda _: ())
    )
    for violation in verdict.violations:
        missing = missing_for(violation)
        yield (
            _not_checked(violation.path, violation.rule, missing)
            if missing
            else _violation(violation)
        )
    for text in verdict.warnings:
        rule, missing = rule_of_warning(text, resource, facts), missing_for(text)
        yield (
            _not_checked(field_paths.path_in(text), rule, missing)
            if missing
            else _warning(text, rule)
        )


def _missing_facts_of(
    item: ManifestObject,
    resource: Resource,
    known_objects: KnownObjects,
    missing_facts: MissingFacts,
) -> Callable[[Violation | str], Sequence[str]]:
    """Return a function that names the missing facts that a violation or warning depends on.

    It depends on them if it disappears once they have the most favourable values.
    """

    @cache
    def with_favourable(*kinds: MissingFactKind) -> Verdict:
        return decide_admission(resource, None, known_objects.lenient_facts(item, *kinds))

    def missing(statement: Violation | str) -> Sequence[str]:
        if _contains(with_favourable(*MissingFactKind), statement):
            return ()
        decisive = (
            MissingFactKind.PRIORITY_CLASS
            if _contains(with_favourable(MissingFactKind.NAMESPACE), statement)
            else MissingFactKind.NAMESPACE
        )
        return [name for name, kind in missing_facts.items() if kind is decisive]

    return missing


def _contains(verdict: Verdict, statement: Violation | str) -> bool:
    return statement in verdict.violations or statement in verdict.warnings


def _is_reviewed(item: ManifestObject) -> bool:
    """Return whether the webhooks review it; for them, a Namespace is in itself."""
    kind, namespace, name = item.name
    return item.name == POLICY_MAP or (name if kind == "Namespace" else namespace) not in EXEMPT


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
    message = f"not evaluated without {' and '.join(missing)} (see --policy)"
    return Finding(level=Level.WARNING, path=path, message=message, rule=rule)
