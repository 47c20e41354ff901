"""`reprieve.dev/preemption-class` is 0 to 10, allowed in its Namespace, and never rises later.

Checked: the label of a pod or of a template is a whole number from 0 to 10 and one of the classes
that the Namespace allows: what `allowed-preemption-classes` lists, 0–6 if it lists nothing, only 10
if workloads are `sensitive`. Class 10 in a Namespace that lists nothing needs a permission (verb
`claim-sensitive` on `preemptionclasses.reprieve.dev`). The rights policies in the API server check
it, also while the webhooks are away; for the kinds of `templateKinds`, whose templates they do not
find, this rule does. Offline it is warned of. A pod's class may only fall after its creation.

Why: class 10 is never preempted, and a class that rises after creation would be a protection that
no admin granted.

Source: document 001, "Preemption Classes": a value outside 0–10 is a 400 before it reaches the
scheduler; "Per-vCluster Preemption Policy".

Setting: `defaultPreemptionClass`; annotations of the Namespace.
"""

from collections.abc import Iterator

from reprieve_policy import facts as known
from reprieve_policy.admission import permissions
from reprieve_policy.admission.permissions import CLAIM_SENSITIVE
from reprieve_policy.config import preemption_class
from reprieve_policy.facts import Facts
from reprieve_policy.keys import PREEMPTION_CLASS
from reprieve_policy.kube.objects import PodView, Resource, pod_views
from reprieve_policy.verdict import NO_FINDINGS, Verdict, Violation, ViolationKind, label_path


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:
    """Check the class of the pod or of the template."""
    before = next(pod_views(old), None) if old else None
    found = [
        violation for view in pod_views(resource) for violation in _check_view(view, before, facts)
    ]
    if CLAIM_SENSITIVE in facts.missing_permissions:
        found += [_lacking(view) for view in permissions.sensitive_claims(resource, old, facts)]
    warnings = (
        tuple(_warn_offline(resource))
        if facts.is_offline and not facts.namespace.is_sensitive
        else ()
    )
    return Verdict(violations=tuple(found), warnings=warnings) if found or warnings else NO_FINDINGS


def _check_view(view: PodView, before: PodView | None, facts: Facts) -> Iterator[Violation]:
    text, path = view.labels.get(PREEMPTION_CLASS), label_path(view.prefix, PREEMPTION_CLASS)
    value = known.default_class(view, facts) if text is None else preemption_class.parse(text, path)
    if isinstance(value, Violation):
        yield value
        return
    allowed = facts.namespace.allowed_classes
    if text is not None and not allowed.may_be_claimed(value):
        yield Violation(
            path, ViolationKind.UNSUPPORTED, text, f"classes allowed in this namespace: {allowed}"
        )
    rises = before is not None and known.effective_class(view, facts) > known.effective_class(
        before, facts
    )
    if rises and not view.is_template:
        yield Violation(path, ViolationKind.FORBIDDEN, None, "may only be lowered after creation")


def _lacking(view: PodView) -> Violation:
    needs = f'"{CLAIM_SENSITIVE.verb}" on {CLAIM_SENSITIVE.resource}.reprieve.dev, cluster-wide'
    path = label_path(view.prefix, PREEMPTION_CLASS)
    return Violation(
        path, ViolationKind.FORBIDDEN, None, f"class {preemption_class.HIGHEST} needs verb {needs}"
    )


def _warn_offline(resource: Resource) -> Iterator[str]:
    for view in pod_views(resource):
        if view.labels.get(PREEMPTION_CLASS) == str(preemption_class.HIGHEST):
            path = label_path(view.prefix, PREEMPTION_CLASS)
            yield f"{path}: class 10 needs the right to claim it"
