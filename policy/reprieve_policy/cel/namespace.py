"""The Namespace's policy as CEL, as `namespace.read_leniently` and `facts.default_class` read it.

The API server gives the Namespace to validations and mutations only, not to `matchConditions`: the
enforcement is therefore evaluated after a violation is found.
"""

from reprieve_policy import keys
from reprieve_policy.config import preemption_class
from reprieve_policy.config.namespace import (
    ENFORCE,
    ENFORCEMENTS,
    EXEMPT,
    SENSITIVE,
    WORKLOAD_TYPE_CLASS,
)
from reprieve_policy.config.settings import PolicySettings

from . import term
from .check import is_accepted

Variable = tuple[str, str]
"""Name and expression. The API server evaluates a variable on first use, and once."""

_HIGHEST = preemption_class.HIGHEST


def label(key: str) -> str:
    """Return the label's text, empty if it is absent."""
    return f"namespaceObject.metadata.?labels[?{term.text(key)}].orValue('')"


def annotation(key: str) -> str:
    """Return the annotation's text, empty if it is absent."""
    return f"namespaceObject.metadata.?annotations[?{term.text(key)}].orValue('')"


def enforcement() -> str:
    """Return the expression of the enforcement.

    The label wins, an unreadable value counts as absent.
    """
    chain = " : ".join(
        f"{is_accepted(ENFORCEMENTS, text)}\n? {text}"
        for text in (label(keys.ENFORCEMENT), annotation(keys.ENFORCEMENT))
    )
    return f"{chain} : '{ENFORCE}'"


def is_exempt() -> str:
    """Return the condition that the Namespace is one to which no rule applies."""
    return f"namespaceObject.metadata.name in {term.texts(EXEMPT)}"


def has_usual_classes() -> str:
    """Return a condition that is true if nothing in the Namespace says which classes it allows."""
    return _lacks(keys.ALLOWED_PREEMPTION_CLASSES, keys.WORKLOAD_TYPE)


def _lacks(*absent: str) -> str:
    each = " && ".join(
        f"!namespaceObject.metadata.?annotations[?{term.text(key)}].hasValue()" for key in absent
    )
    return f"(!has(namespaceObject.metadata.annotations) || {each})"


def classes(settings: PolicySettings) -> tuple[Variable, ...]:
    """Return the allowed classes, and the class of a pod without the label."""
    listed = annotation(keys.ALLOWED_PREEMPTION_CLASSES)
    workload_type = annotation(keys.WORKLOAD_TYPE)
    types = {name: value for name, value in WORKLOAD_TYPE_CLASS.items() if name != SENSITIVE}
    by_type = ", ".join(f"'{name}': '{value}'" for name, value in types.items())
    # The first that is set and that the Namespace allows; `sensitive` allows only one.
    own_default = annotation(keys.DEFAULT_PREEMPTION_CLASS)
    candidates = ", ".join(
        (
            own_default,
            f"{{{by_type}}}[?{workload_type}].orValue('')",
            f"'{settings.default_class}'",
            HIGHEST_ALLOWED,
        )
    )
    usual = str(min(settings.default_class, max(preemption_class.UNLISTED.classes)))
    says_nothing = _lacks(
        keys.ALLOWED_PREEMPTION_CLASSES, keys.WORKLOAD_TYPE, keys.DEFAULT_PREEMPTION_CLASS
    )
    return (
        ("isListed", is_accepted(preemption_class.CLASSES, listed)),
        ("allowed", allowed()),
        (
            "defaultClass",
            (f"{says_nothing} ? '{usual}'\n: [{candidates}].filter(n, n in variables.allowed)[0]"),
        ),
    )


def allowed() -> str:
    """Return the expression of the list of allowed classes."""
    listed = annotation(keys.ALLOWED_PREEMPTION_CLASSES)
    numbers = [str(value) for value in range(_HIGHEST + 1)]
    unlisted = [str(value) for value in sorted(preemption_class.UNLISTED.classes)]
    runs = f"{listed}.split(',').map(part, part.trim().split('-'))"
    is_in_run = "int(run[0]) <= int(n) && int(n) <= int(run[run.size() - 1])"
    among = f"{term.texts(numbers)}.filter(n, {runs}\n.exists(run, {is_in_run}))"
    # An unreadable list counts as absent.
    is_listed = is_accepted(preemption_class.CLASSES, listed)
    return f"{IS_SENSITIVE} ? ['{_HIGHEST}'] : !({is_listed}) ? {term.texts(unlisted)}\n: {among}"


def allowed_shown(allowed: str = "variables.allowed") -> str:
    """Return the expression of the allowed classes as runs: `0-2,5`; `allowed` is a name."""
    first = f"!(string(int(n) - 1) in {allowed})"
    last = f"{allowed}.filter(m, int(m) >= int(n) && !(string(int(m) + 1) in {allowed}))[0]"
    return f"{allowed}.filter(n, {first}).map(n, n == {last} ? n : n + '-' + {last}).join(',')"


HIGHEST_ALLOWED = "variables.allowed[variables.allowed.size() - 1]"
IS_SENSITIVE = f"{annotation(keys.WORKLOAD_TYPE)} == '{SENSITIVE}'"
