"""The rules for pods, and for the templates that make them, as policies.

Left to the webhooks: marks in Koordinator's annotation (JSON), everything that depends on a
PriorityClass, gangs, quotas, and what a hint's scheme requires.
"""

from collections.abc import Iterator
from typing import NamedTuple

from reprieve_policy import keys
from reprieve_policy.admission import fields
from reprieve_policy.admission.fields import MetadataField
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

_PARTS = ("labels", "annotations")
_CLASS = ("labels", keys.PREEMPTION_CLASS)
_MARKS = (
    ("labels", keys.SOFT_EVICTION),
    ("labels", keys.KOORDINATOR_SOFT_EVICTION),
    ("annotations", keys.KOORDINATOR_SOFT_EVICTION),
)
"""Where a mark may be; every value there is a mark."""
_IS_BY_A_CONTROLLER = (
    f"request.userInfo.username in {term.texts(sorted(controllers.USERS))}\n"
    "&& object.metadata.?ownerReferences.orValue([])"
    ".exists(owner, owner.?controller.orValue(false))"
)


class KindGroup(NamedTuple):
    """Kinds whose pod, or whose template, is at the same path, and the operations on them."""

    name: str
    kinds: tuple[ServedKind, ...]
    prefix: str
    operations: tuple[str, ...] = ("CREATE", "UPDATE")
    subresources: tuple[str, ...] = ()

    @property
    def is_template(self) -> bool:
        """True if the object makes pods, and is none."""
        return bool(self.prefix)

    @property
    def has_old(self) -> bool:
        """True if there may be an old object."""
        return "UPDATE" in self.operations

    def find(self, owner: str, path: str) -> str:
        """Return the expression for `path` of the pod or template in `object` or `oldObject`."""
        return owner + "".join(f".?{step}" for step in f"{self.prefix}{path}".split("."))

    def new(self, part: str, key: str) -> str:
        """Return the entry of the object's labels or annotations, as an optional."""
        # Each created pod is checked: that costs less without variables.
        return term.entry(f"variables.{part}" if self.has_old else f"object.metadata.?{part}", key)

    def old(self, part: str, key: str) -> str | None:
        """Return the entry of the old object; None if there is none."""
        return term.entry(f"variables.old{part.capitalize()}", key) if self.has_old else None


def kind_groups() -> Iterator[KindGroup]:
    """Yield the kinds of the table, one group for each path of a template.

    Pods are two groups. Nearly all that are created have something to be checked, for the API
    server has given them a class; nearly all updates have not.
    """
    yield KindGroup("pods", (KINDS["Pod"],), "", ("CREATE",))
    yield KindGroup("pod-updates", (KINDS["Pod"],), "", ("UPDATE",), ("status", "resize"))
    names = {"spec.template.": "templates", "spec.jobTemplate.spec.template.": "cronjobs"}
    for prefix, name in names.items():
        yield KindGroup(
            name, tuple(row for row in KINDS.values() if row.template == prefix), prefix
        )


def render(group: KindGroup, settings: PolicySettings) -> list[Document]:
    """Return the policies that refuse, and those that warn."""
    if not group.has_old:
        return _render_created(group, settings)
    name, condition = f"reprieve-rules-{group.name}", _condition(group, settings)
    constraints = document.constraints(
        group.kinds, operations=group.operations, subresources=group.subresources
    )
    variables = tuple(_variables(group, settings))
    refused, warned = ([_refused_where(mode)] for mode in (ENFORCE, WARN))
    return [
        *document.validating(name, "Deny", constraints, condition, variables, refused),
        *document.validating(
            f"{name}-warn", "Warn", constraints, condition, variables, [*warned, *_advice(group)]
        ),
    ]


def _render_created(group: KindGroup, settings: PolicySettings) -> list[Document]:
    """Return the policies for created pods, of which nearly all are accepted.

    A condition costs less than a validation, whose message is evaluated as well, but only a
    validation can read the Namespace. So two policies have a condition that is true for what is
    not accepted in every Namespace, and list all violations. The other two check what is left:
    the class of a pod in a Namespace with classes of its own.
    """
    name = f"reprieve-rules-{group.name}"
    is_accepted = _is_accepted(group, settings)
    is_silent = f"{is_accepted}\n&& {_has_no_advice(group)}"
    policies = (
        (name, "Deny", _unless(is_accepted), [_refused_where(ENFORCE)]),
        (
            f"{name}-in-namespaces",
            "Deny",
            None,
            [_refused_by_namespace(ENFORCE, group, is_accepted)],
        ),
        (f"{name}-warn", "Warn", _unless(is_silent), [_refused_where(WARN), *_advice(group)]),
        (
            f"{name}-in-namespaces-warn",
            "Warn",
            None,
            [_refused_by_namespace(WARN, group, is_silent)],
        ),
    )
    constraints = document.constraints(
        group.kinds, operations=group.operations, exempts_by_selector=False
    )
    variables = tuple(_variables(group, settings))
    return [
        found
        for each, action, condition, validations in policies
        for found in document.validating(
            each, action, constraints, condition, variables, validations
        )
    ]


def _unless(is_accepted: str) -> MatchCondition:
    return MatchCondition("says-what-is-not-accepted", f"!({is_accepted})")


def _condition(group: KindGroup, settings: PolicySettings) -> MatchCondition:
    new, old = (
        {part: group.find(owner, f"metadata.{part}") for part in _PARTS}
        for owner in ("object", "oldObject")
    )
    keys_read = [(field.part, field.key) for field in fields.pod_fields(settings)]
    others = [] if group.is_template else [document.NOT_DELETED]
    if any(kind.resource == "replicasets" for kind in group.kinds):
        others.append(
            "(request.resource.resource != 'replicasets'"
            f" || !(request.userInfo.username in {term.texts(controllers.OF_DEPLOYMENTS)}))"
        )
    return document.preemption_changed(
        [*keys_read, *(_MARKS if group.is_template else ())], new, old, *others
    )


def _variables(group: KindGroup, settings: PolicySettings) -> Iterator[Variable]:
    for part in _PARTS:
        yield part, group.find("object", f"metadata.{part}") + ".orValue({})"
        yield (
            f"old{part.capitalize()}",
            group.find("oldObject", f"metadata.{part}") + ".orValue({})",
        )
    yield "enforcement", _enforcement(group)
    yield from namespace.classes(settings)
    yield "isPlanReadable", _is_plan_readable(group, settings)
    yield "preemptionClass", _effective(group.new(*_CLASS))
    if (old := group.old(*_CLASS)) is not None:
        yield "oldPreemptionClass", _effective(old)
    yield "found", "\n+ ".join(_violations(group, settings))


def _enforcement(group: KindGroup) -> str:
    """Return the Namespace's enforcement, as eased in `review.decide_admission`.

    The template of a controller's pod was reviewed when it was written.
    """
    demanded = namespace.enforcement()
    if not group.has_old:
        demanded = f"{namespace.is_exempt()} ? '{OFF}'\n: {demanded}"
    if "CREATE" not in group.operations:
        return demanded
    is_created = "oldObject == null && " if group.has_old else ""
    is_eased = f"{is_created}{_IS_BY_A_CONTROLLER}\n&& ({demanded}) == '{ENFORCE}'"
    return f"{is_eased} ? '{WARN}'\n: {demanded}"


def _violations(group: KindGroup, settings: PolicySettings) -> Iterator[str]:
    """Yield the expressions of lists of violations, in the order of the rules."""
    class_field, preemptible, *others = fields.pod_fields(settings)

    def violation(field: MetadataField, otherwise: str = "[]") -> str:
        entry = field.part, field.key
        return check.violations(
            field, group.prefix, group.new(*entry), group.old(*entry), otherwise
        )

    is_updated = group.operations == ("UPDATE",)
    yield violation(class_field, _unclaimable(class_field.path(group.prefix)))
    if is_updated:
        yield _raised(group, class_field.path())
    yield violation(preemptible)
    can_preempt, *plan = others
    yield violation(can_preempt)
    if is_updated:
        yield _made_unpreemptible(
            group, preemptible.path(), is_default=settings.default_preemptible is not False
        )
    for field in plan:
        yield violation(field)
    if group.is_template:
        yield from (_marked(group, part, key) for part, key in _MARKS)


def _is_accepted(group: KindGroup, settings: PolicySettings) -> str:
    """Return a condition on the pod alone: all of its fields are accepted.

    Its class is one that a Namespace without classes of its own allows.
    """
    accepted: dict[str, list[str]] = {"labels": [_is_usual_class(group)], "annotations": []}
    for field in fields.pod_fields(settings):
        if field.key != keys.PREEMPTION_CLASS:
            accepted[field.part].append(
                check.is_absent_or_accepted(field.value, group.new(field.part, field.key))
            )
    # A pass over all annotations costs as much with two of them, and more with others' in a pod.
    annotations = "\n&& ".join(accepted["annotations"])
    return "\n&& ".join(
        (*accepted["labels"], f"(!has(object.metadata.annotations) || {annotations})")
    )


def _is_usual_class(group: KindGroup) -> str:
    classes = map(str, sorted(preemption_class.UNLISTED.classes))
    return f"{group.new(*_CLASS)}.orValue('') in {term.texts(classes)}"


def _has_no_advice(group: KindGroup) -> str:
    """Return a condition on a pod of a usual class: it is not warned of what is harmful."""
    hint, strategy = (
        group.new("annotations", key) for key in (keys.CHECKPOINT_HINT, keys.CHECKPOINT)
    )
    return f"(!{hint}.hasValue() || {strategy}.orValue('') != 'none')"


def _unclaimable(path: str) -> str:
    before, after = _unclaimable_texts(path)
    allowed = f"{term.text(after)} + {namespace.allowed_shown()}"
    return f"{_may_be_claimed('t')} ? [] : [[{term.text(before)}, t, {allowed}]]"


def _unclaimable_texts(path: str) -> tuple[str, str]:
    """Return what is before the value and after it, without the classes that are allowed."""
    return (
        f"{path}: {ViolationKind.UNSUPPORTED.text}: ",
        ": classes allowed in this namespace: ",
    )


def _may_be_claimed(text: str) -> str:
    """Class 10 in a Namespace that lists no classes needs a permission, which the guard checks."""
    is_highest = f"{text} == '{preemption_class.HIGHEST}'"
    return f"{text} in variables.allowed || {is_highest} && !variables.isListed"


def _effective(entry: str) -> str:
    """Return the effective class of a label, as `facts.effective_class` reads it."""
    highest, default = namespace.HIGHEST_ALLOWED, "int(variables.defaultClass)"
    clamped = f"{_may_be_claimed('t')} || int(t) < int({highest}) ? int(t) : int({highest})"
    readable = f"{check.is_accepted(preemption_class.CLASS, 't')} ? ({clamped}) : {default}"
    return (
        f"{namespace.IS_SENSITIVE} ? {default} : {entry}.optMap(t, {readable}).orValue({default})"
    )


def _is_known(group: KindGroup, entry: str) -> str:
    """True if the pod's class is known here: without the label, its PriorityClass may set it."""
    names_none = f"{group.find('object', 'spec.priorityClassName')}.orValue('') == ''"
    return f"({entry}.hasValue() || {names_none})"


def _raised(group: KindGroup, path: str) -> str:
    new, old = group.new(*_CLASS), group.old(*_CLASS)
    assert old is not None
    readable = f"{new}.optMap(t, {check.is_accepted(preemption_class.CLASS, 't')}).orValue(true)"
    conditions = (
        f"{new} != {old}",
        readable,
        _is_known(group, new),
        _is_known(group, old),
        "variables.preemptionClass > variables.oldPreemptionClass",
    )
    refusal = term.refusal(
        path, ViolationKind.FORBIDDEN, None, "may only be lowered after creation"
    )
    return f"({' && '.join(conditions)}\n? {refusal} : [])"


def _made_unpreemptible(group: KindGroup, path: str, *, is_default: bool) -> str:
    entries = (find("labels", keys.PREEMPTIBLE) for find in (group.old, group.new))
    is_preemptible = "{}.orValue('') != 'false'" if is_default else "{}.orValue('') == 'true'"
    was, is_now = (is_preemptible.format(entry) for entry in entries)
    refusal = term.refusal(
        path, ViolationKind.FORBIDDEN, None, "a preemptible pod stays preemptible after creation"
    )
    return f"({was} && !({is_now}) ? {refusal} : [])"


def _marked(group: KindGroup, part: str, key: str) -> str:
    new, old = group.new(part, key), group.old(part, key)
    path = (label_path if part == "labels" else annotation_path)(group.prefix, key)
    refusal = term.refusal(
        path,
        ViolationKind.FORBIDDEN,
        None,
        "a mark in a template would evict every pod that it makes",
    )
    return f"({new}.hasValue() && !{old}.hasValue() ? {refusal} : [])"


def _refused_by_namespace(mode: str, group: KindGroup, is_left: str) -> Validation:
    """Return the validation that refuses a class because of the Namespace alone.

    `is_left` is the condition that no other policy evaluates the pod: its class is one that most
    Namespaces allow. There are no variables, because each takes its time for every pod.
    """
    entry, allowed = f"{group.new(*_CLASS)}.orValue('')", namespace.allowed()
    is_fine = f"{namespace.has_usual_classes()} || {entry} in ({allowed})"
    shown = f"[{allowed}].map(allowed, {namespace.allowed_shown('allowed')})[0]"
    before, after = _unclaimable_texts(label_path(group.prefix, keys.PREEMPTION_CLASS))
    quoted = (term.text(before + '"'), entry, term.text('"' + after))
    return Validation(
        f"{is_fine}\n|| !({is_left})\n|| ({_enforcement(group)}) != '{mode}'",
        document.REFUSED,
        f"{is_fine}\n? '' : {' + '.join(quoted)} + {shown}",
    )


def _refused_where(mode: str) -> Validation:
    """Return the validation that refuses violations where the enforcement is `mode`."""
    is_fine = "variables.found.size() == 0"
    is_elsewhere = f"variables.enforcement != '{mode}'"
    # The cheaper question first: few Namespaces warn, and few objects are refused.
    parts = [is_elsewhere, is_fine] if mode == WARN else [is_fine, is_elsewhere]
    condition = "\n|| ".join(parts)
    message = f"{condition}\n? '' : {term.message('variables.found')}"
    return Validation(condition, document.REFUSED, message)


def _is_plan_readable(group: KindGroup, settings: PolicySettings) -> str:
    return "\n&& ".join(
        check.is_absent_or_accepted(field.value, group.new(field.part, field.key))
        for field in fields.pod_fields(settings)
        if field.key in CHECKPOINT_KEYS
    )


def _advice(group: KindGroup) -> Iterator[Validation]:
    """Yield warnings for what is legal but harmful. `Warn` shows each by itself."""
    strategy = f"{group.new('annotations', keys.CHECKPOINT)}.orValue('')"
    hint = f"{group.new('annotations', keys.CHECKPOINT_HINT)}.hasValue()"
    is_silent = f"variables.enforcement == '{OFF}' || !variables.isPlanReadable"
    hint_path = annotation_path(group.prefix, keys.CHECKPOINT_HINT)
    warning = f'{hint_path}: has no effect with checkpoint "none"'
    yield Validation(f"{strategy} != 'none' || !{hint} || {is_silent}", warning)

    never_saved = f"({strategy} == 'none' || {strategy} == '' && !{hint})"
    lowest, highest = preemption_class.NON_PREEMPTIBLE_WITHOUT_CHECKPOINT, preemption_class.HIGHEST
    number, entry = "variables.preemptionClass", group.new(*_CLASS)
    # A label's class is at most lowered: most are too low for this, which is known without the
    # Namespace.
    says_little = f"{entry}.orValue('') in {term.texts(map(str, range(lowest)))}"
    is_protected = f"{_is_known(group, entry)} && {number} >= {lowest} && {number} < {highest}"
    path = label_path(group.prefix, keys.PREEMPTION_CLASS)
    before = term.text(f"{path}: class ")
    text = f"{before} + string({number}) + ' without a checkpoint is non-preemptible'"
    yield Validation(
        f"{says_little} || !({never_saved} && {is_protected}) || {is_silent}",
        f"{path}: a class from {lowest} up without a checkpoint is non-preemptible",
        f"{says_little} ? '' : {text}",
    )
