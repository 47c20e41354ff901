"""The preemption class, 0 to 10 (document 001). Only lower classes are preempted, and never 10."""

from collections.abc import Iterable
from dataclasses import dataclass

from reprieve_policy.verdict import Violation

from .annotation_values import LONGEST, Matches

LOWEST = 0
HIGHEST = 10
DEFAULT = 4
"""The cluster's default: the specification's "normal: production training, simulation"."""

HIGHEST_UNLISTED = 6
"""The highest class in a Namespace without `allowed-preemption-classes`. Only an admin can give 7
and above."""

NON_PREEMPTIBLE_WITHOUT_CHECKPOINT = 7
"""From this class on, `checkpoint: none` makes a workload non-preemptible (document 001)."""

_CLASS = "[0-9]|10"
_RANGES = "|".join(
    f"{low}(?:-(?:{'|'.join(map(str, range(low, HIGHEST + 1)))}))?" for low in range(HIGHEST + 1)
)

CLASS = Matches(
    _CLASS,
    f"must be between {LOWEST} and {HIGHEST}, in plain digits",
    longest=len(str(HIGHEST)),
)
"""One class."""

CLASSES = Matches(
    f" *(?:{_RANGES}) *(?:, *(?:{_RANGES}) *)*",
    f'must be classes or ranges between {LOWEST} and {HIGHEST}, like "0-6" or "0-2,5"',
    longest=LONGEST,
)
"""Classes and ranges; the pattern rejects a range that runs backwards."""

_BY_TEXT = {str(value): value for value in range(LOWEST, HIGHEST + 1)}
"""All texts that `CLASS` matches. Three rules ask for every pod's class, and the pattern takes five
times as long."""

_PRIORITY_CLASS_PREFIX = "reprieve-class-"

STRICT = "strict"
BANDED = "banded"


def parse(text: str, path: str) -> int | Violation:
    """Return the class that `text` names."""
    value = _BY_TEXT.get(text)
    return Violation(path, CLASS.kind, text, CLASS.detail) if value is None else value


def priority_class_name(value: int) -> str:
    """Return the name of the PriorityClass that pods of this class get (`classPriorities`)."""
    return f"{_PRIORITY_CLASS_PREFIX}{value}"


@dataclass(frozen=True, slots=True)
class ClassSet:
    """The classes that a Namespace allows, as ranges: `0-6`, `3`, `0-2,5`."""

    classes: frozenset[int]
    is_listed: bool = True
    """False if the Namespace lists none: class 10 then needs a permission, which the guard checks,
    instead of being refused by a rule."""

    def __contains__(self, value: int) -> bool:
        return value in self.classes

    def may_be_claimed(self, value: int) -> bool:
        """True if a label may have `value`."""
        return value in self.classes or (value == HIGHEST and not self.is_listed)

    def clamp(self, value: int) -> int:
        """Return the class that a label of `value` gives.

        A class that may not be claimed protects no better than the highest one allowed.
        """
        return value if self.may_be_claimed(value) else min(value, max(self.classes))

    def __str__(self) -> str:
        return ",".join(_runs(sorted(self.classes)))


UNLISTED = ClassSet(frozenset(range(LOWEST, HIGHEST_UNLISTED + 1)), is_listed=False)


def parse_set(text: str, path: str) -> ClassSet | Violation:
    """Return the classes of a comma-separated list of classes and ranges."""
    match = CLASSES.parse(text, path)
    if isinstance(match, Violation):
        return match
    classes: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        classes.update(range(int(first), int(last or first) + 1))
    return ClassSet(frozenset(classes))


def may_preempt(preemptor: int, victim: int, rule: str = STRICT) -> bool:
    """True if a preemptor of this class may take a victim of class `victim`.

    `strict` follows the text of the algorithm: a strictly higher class, and never 10. `banded`
    follows the specification's table: 1-3 by 4 and above, 4-6 by 7 and above, 7-9 by 10 only.
    """
    if victim >= HIGHEST:
        return False
    if rule == BANDED:
        return preemptor >= _BAND_TAKEN_FROM[victim]
    return preemptor > victim


def is_non_preemptible(preemption_class: int, *, has_checkpoint: bool) -> bool:
    """True for class 10, and for class 7 and above without a checkpoint to save its work."""
    return preemption_class >= HIGHEST or (
        preemption_class >= NON_PREEMPTIBLE_WITHOUT_CHECKPOINT and not has_checkpoint
    )


_BAND_TAKEN_FROM = {0: 1, 1: 4, 2: 4, 3: 4, 4: 7, 5: 7, 6: 7, 7: 10, 8: 10, 9: 10}


def _runs(classes: Iterable[int]) -> list[str]:
    runs: list[list[int]] = []
    for value in classes:
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
