"""The rules for pods, and for the templates that make them, as policies.

Left to the webhooks: marks in Koordinator's annotation (JSON), everything that depends on a
PriorityClass, gangs, quotas, and what a hint's scheme requires.
"""

from collections.abc import Iterator
from typing import NamedTuple

from reprieve_policy import keys
from reprieve_policy.admission import fields
from reprieve_policy.checkpointing.checkpoint_plan import KEYS as CHECKPOINT_KEYS
from reprieve_policy.config import preemption_class
from reprieve_policy.config.namespace import ENFORCE, OFF, WARN
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube import controllers
from reprieve_policy.kube.kinds import KINDS, ServedKind
from reprieve_policy.verdict import ViolationKind, annotation_path, label_path

from . import check, document, namespace, term
from .document import Document, MatchCondition, Validation
from .namespace import Variable

_CLASS = term.entry("labels", keys.PREEMPTION_CLASS)
_OLD_CLASS = term.entry("oldLabels", keys.PREEMPTION_CLASS)
_PARTS = ("labels", "annotations")
_MARKS = (
    ("labels", keys.SOFT_EVICTION),
    ("labels", keys.KOORDINATOR_SOFT_EVICTION),
    ("annotations", keys.KOORDINATOR_SOFT_EVICTION),
)
"""Where a mark may be; every value there is a mark."""
_IS_MADE_FROM_TEMPLATE = (
    f"oldObject == null && request.userInfo.username in {term.texts(sorted(controllers.USERS))}\n"
    "&& object.metadata.?ownerReferences.orValue([])"
    ".exists(owner, owner.?controller.orValue(false))"
)


class KindGroup(NamedTuple):
    """Kinds whose pod, or whose template, is at the same path."""

    name: str
    kinds: tuple[ServedKind, ...]
    prefix: str

    @property
    def is_template(self) -> bool:
        """True if the object makes pods, and is none."""
        return bool(self.prefix)

    def find(self, owner: str, path: str) -> str:
        """Return the expression for `path` of the pod or template in `object` or `oldObject`."""
        return owner + "".join(f".?{step}" for step in f"{self.prefix}{path}".split("."))


def kind_groups() -> Iterator[KindGroup]:
    """Yield the kinds of the table, one group for each path of a template."""
    names = {
        "": "pods",
        "spec.template.": "templates",
        "spec.jobTemplate.spec.template.": "cronjobs",
    }
    for prefix, name in names.items():
        yield KindGroup(
            name, tuple(row for row in KINDS.values() if row.template == prefix), prefix
        )


def render(group: KindGroup, settings: PolicySettings) -> list[Document]:
    """Return the policy that refuses and the one that warns."""
    constraints = document.constraints(
        group.kinds, subresources=() if group.is_template else ("status", "resize")
    )
    conditions = tuple(_conditions(group, settings))
    variables = tuple(_variables(group, settings))
    name = f"reprieve-rules-{group.name}"
    denies = document.validating(
        name, "Deny", constraints, conditions, variables, [_refused_where(ENFORCE)]
    )
    warnings = [_refused_where(WARN), *_advice(group)]
    return denies + document.validating(
        f"{name}-warn", "Warn", constraints, conditions, variables, warnings
    )


def _conditions(group: KindGroup, settings: PolicySettings) -> Iterator[MatchCondition]:
    yield document.NOT_DELETED
    if any(kind.resource == "replicasets" for kind in group.kinds):
        yield MatchCondition(
            "is-not-a-deployments-replicaset",
            "request.resource.resource != 'replicasets'\n"
            f"|| !(request.userInfo.username in {term.texts(controllers.OF_DEPLOYMENTS)})",
        )
    new, old = (
        {part: group.find(owner, f"metadata.{part}") for part in _PARTS}
        for owner in ("object", "oldObject")
    )
    keys_read = [(field.part, field.key) for field in fields.pod_fields(settings)]
    yield document.preemption_changed(
        [*keys_read, *(_MARKS if group.is_template else ())], new, old
    )


def _variables(group: KindGroup, settings: PolicySettings) -> Iterator[Variable]:
    for part in _PARTS:
        yield part, group.find("object", f"metadata.{part}") + ".orValue({})"
        yield term.old(part), group.find("oldObject", f"metadata.{part}") + ".orValue({})"
    yield namespace.enforcement("demanded")
    # As in `review.decide_admission`: the template of a controller's pod was reviewed when it was
    # written.
    yield "isMadeFromTemplate", _IS_MADE_FROM_TEMPLATE
    is_eased = f"variables.isMadeFromTemplate && variables.demanded == '{ENFORCE}'"
    yield "enforcement", f"{is_eased} ? '{WARN}' : variables.demanded"
    yield from namespace.classes(settings)
    yield "priorityClassName", group.find("object", "spec.priorityClassName") + ".orValue('')"
    yield "isPlanReadable", _is_plan_readable(settings)
    yield "preemptionClass", _effective(_CLASS)
    yield "oldPreemptionClass", _effective(_OLD_CLASS)
    yield "found", "\n+ ".join(_violations(group, settings))
    yield "violations", term.shown("variables.found")


def _violations(group: KindGroup, settings: PolicySettings) -> Iterator[str]:
    """Yield the expressions of lists of violations, in the order of the rules."""
    class_field, preemptible, *others = fields.pod_fields(settings)
    yield check.violations(class_field, group.prefix, _unclaimable(class_field.path(group.prefix)))
    if not group.is_template:
        yield _raised(class_field.path())
    yield check.violations(preemptible, group.prefix)
    can_preempt, *plan = others
    yield check.violations(can_preempt, group.prefix)
    if not group.is_template:
        yield _made_unpreemptible(
            preemptible.path(), is_default=settings.default_preemptible is not False
        )
    for field in plan:
        yield check.violations(field, group.prefix)
    if group.is_template:
        yield from (_marked(part, key, group.prefix) for part, key in _MARKS)


def _unclaimable(path: str) -> str:
    before, after = (
        f"{path}: {ViolationKind.UNSUPPORTED.text}: ",
        ": classes allowed in this namespace: ",
    )
    allowed = f"{term.text(after)} + {namespace.allowed_shown()}"
    return f"{_may_be_claimed('t')} ? [] : [[{term.text(before)}, t, {allowed}]]"


def _may_be_claimed(text: str) -> str:
    """Class 10 in a Namespace that lists no classes needs a permission, which the guard checks."""
    is_highest = f"{text} == '{preemption_class.HIGHEST}'"
    return f"{text} in variables.allowed || {is_highest} && !variables.isListed"


def _effective(entry: str) -> str:
    """Return the effective class of a label, as `facts.effective_class` reads it."""
    highest, default = "variables.highestAllowed", "int(variables.defaultClass)"
    clamped = f"{_may_be_claimed('t')} || int(t) < int({highest}) ? int(t) : int({highest})"
    readable = f"{check.is_accepted(preemption_class.CLASS, 't')} ? ({clamped}) : {default}"
    return f"variables.isSensitive ? {default} : {entry}.optMap(t, {readable}).orValue({default})"


def _is_known(entry: str) -> str:
    """True if the pod's class is known here: without the label, its PriorityClass may set it."""
    return f"({entry}.hasValue() || variables.priorityClassName == '')"


def _raised(path: str) -> str:
    readable = f"{_CLASS}.optMap(t, {check.is_accepted(preemption_class.CLASS, 't')}).orValue(true)"
    conditions = (
        "oldObject != null",
        f"{_CLASS} != {_OLD_CLASS}",
        readable,
        _is_known(_CLASS),
        _is_known(_OLD_CLASS),
        "variables.preemptionClass > variables.oldPreemptionClass",
    )
    refusal = term.refusal(
        path, ViolationKind.FORBIDDEN, None, "may only be lowered after creation"
    )
    return f"({' && '.join(conditions)}\n? {refusal} : [])"


def _made_unpreemptible(path: str, *, is_default: bool) -> str:
    entries = (term.entry(part, keys.PREEMPTIBLE) for part in ("oldLabels", "labels"))
    is_preemptible = "{}.orValue('') != 'false'" if is_default else "{}.orValue('') == 'true'"
    was, is_now = (is_preemptible.format(entry) for entry in entries)
    refusal = term.refusal(
        path, ViolationKind.FORBIDDEN, None, "a preemptible pod stays preemptible after creation"
    )
    return f"(oldObject != null && {was} && !({is_now}) ? {refusal} : [])"


def _marked(part: str, key: str, prefix: str) -> str:
    new, old = term.entry(part, key), term.entry(term.old(part), key)
    path = (label_path if part == "labels" else annotation_path)(prefix, key)
    refusal = term.refusal(
        path,
        ViolationKind.FORBIDDEN,
        None,
        "a mark in a template would evict every pod that it makes",
    )
    return f"({new}.hasValue() && !{old}.hasValue() ? {refusal} : [])"


def _refused_where(mode: str) -> Validation:
    # The cheaper question first: few Namespaces warn, and few objects are refused.
    parts = (f"variables.enforcement != '{mode}'", "variables.found.size() == 0")
    condition = " || ".join(parts if mode == WARN else reversed(parts))
    message = f"{condition} ? '' : {term.joined('variables.violations')}"
    return Validation(condition, message, "its preemption settings are not accepted")


def _is_plan_readable(settings: PolicySettings) -> str:
    plan = (field for field in fields.pod_fields(settings) if field.key in CHECKPOINT_KEYS)
    readable = (
        f"{term.entry(field.part, field.key)}"
        f".optMap(t, {check.is_accepted(field.value, 't')}).orValue(true)"
        for field in plan
    )
    return "\n&& ".join(readable)


def _advice(group: KindGroup) -> Iterator[Validation]:
    """Yield warnings for what is legal but harmful. `Warn` shows each by itself."""
    strategy = f"{term.entry('annotations', keys.CHECKPOINT)}.orValue('')"
    hint = f"{term.entry('annotations', keys.CHECKPOINT_HINT)}.hasValue()"
    is_silent = f"variables.enforcement == '{OFF}' || !variables.isPlanReadable"
    hint_path = annotation_path(group.prefix, keys.CHECKPOINT_HINT)
    warning = f'{hint_path}: has no effect with checkpoint "none"'
    yield Validation(f"{strategy} != 'none' || !{hint} || {is_silent}", term.text(warning), warning)

    never_saved = f"({strategy} == 'none' || {strategy} == '' && !{hint})"
    lowest, highest = preemption_class.NON_PREEMPTIBLE_WITHOUT_CHECKPOINT, preemption_class.HIGHEST
    number = "variables.preemptionClass"
    # A label's class is at most lowered: most are too low for this, which is known without the
    # Namespace.
    says_little = f"{_CLASS}.orValue('') in {term.texts(map(str, range(lowest)))}"
    is_protected = (
        f"!({says_little}) && {_is_known(_CLASS)} && {number} >= {lowest} && {number} < {highest}"
    )
    path = label_path(group.prefix, keys.PREEMPTION_CLASS)
    before = term.text(f"{path}: class ")
    text = f"{before} + string({number}) + ' without a checkpoint is non-preemptible'"
    message = f"{says_little} ? '' : {text}"
    fallback = f"{path}: a class from {lowest} up without a checkpoint is non-preemptible"
    yield Validation(f"!({never_saved} && {is_protected}) || {is_silent}", message, fallback)
