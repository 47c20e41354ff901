"""How a workload wants to be told and how long it needs: the checkpoint annotations as a plan.

`checkpoint` absent means `auto` where a hint is declared, else `none`, so that ordinary pods never wait.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from . import duration, keys
from .settings import PolicySettings
from .verdict import Kind, Violation, annotation_path, unsupported


class Strategy(StrEnum):
    """Who makes the checkpoint: `manual` is hinted too, only its cost differs (document 001)."""

    AUTO = "auto"
    MANUAL = "manual"
    NONE = "none"


class Requeue(StrEnum):
    """Whether a replacement inherits count and checkpoint."""

    AUTO = "auto"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class HttpHint:
    """POST to the pod's own IP. There is no host on purpose: nobody can point Reprieve elsewhere."""

    port: int
    path: str


@dataclass(frozen=True, slots=True)
class AnnotationHint:
    """The request is written to an annotation, which the workload reads through the downward API."""


Hint = HttpHint | AnnotationHint


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What will be done with this pod when it must go."""

    strategy: Strategy
    hint: Hint
    timeout_seconds: int
    max_deferral_seconds: int
    estimated_seconds: int | None = None
    requeue: Requeue = Requeue.AUTO

    @property
    def waits(self) -> bool:
        """True where the pod is hinted and given time."""
        return self.strategy is not Strategy.NONE


_HTTP = re.compile(r"http://:([1-9][0-9]{0,4})(/[!-~]*)")
_HINT_EXPECTED = 'supported values: "http://:PORT/PATH" on the pod itself, "annotation:"'
_MAX_HINT = 512


def parse(annotations: Mapping[str, str], settings: PolicySettings, prefix: str = "") -> Plan | tuple[Violation, ...]:
    """Read the plan of a pod or template; all violations at once."""
    texts = tuple(map(annotations.get, _READERS))
    # The pods of one template say the same, so reading is remembered; never what is too long to be right.
    is_short = max(map(len, filter(None, texts)), default=0) <= _MAX_HINT
    read = _read if is_short else _read.__wrapped__
    return read(texts, settings, prefix)


def read_leniently(annotations: Mapping[str, str], settings: PolicySettings) -> Plan:
    """Read the plan of a pod that no webhook has checked: what is unreadable counts as unsaid."""
    plan = parse(annotations, settings)
    if isinstance(plan, Plan):
        return plan
    bad = {violation.path for violation in plan}
    good = {key: text for key, text in annotations.items() if annotation_path("", key) not in bad}
    return read_leniently(good, settings)


def parse_hint(text: str, path: str) -> Hint | Violation:
    """Return the carrier that `text` names."""
    if text == "annotation:":
        return AnnotationHint()
    match = _HTTP.fullmatch(text) if len(text) <= _MAX_HINT else None
    if match is None or int(match[1]) > 65535 or "#" in match[2]:
        return Violation(path, Kind.UNSUPPORTED, text, _HINT_EXPECTED)
    return HttpHint(int(match[1]), match[2])


@lru_cache(maxsize=256)
def _read(texts: Sequence[str | None], settings: PolicySettings, prefix: str) -> Plan | tuple[Violation, ...]:
    """Read the plan from the texts of `_READERS`' keys, in order."""
    said = {key: text for key, text in zip(_READERS, texts, strict=True) if text is not None}
    read = {key: _READERS[key](text, annotation_path(prefix, key)) for key, text in said.items()}
    violations = [value for value in read.values() if isinstance(value, Violation)]
    violations.extend(_check_ceiling(read, said, settings, prefix))
    return tuple(violations) or _build(read, settings)


def _build(read: Mapping[str, object], settings: PolicySettings) -> Plan:
    hint = read.get(keys.CHECKPOINT_HINT)
    unsaid = Strategy.NONE if hint is None else Strategy.AUTO
    strategy, requeue = read.get(keys.CHECKPOINT, unsaid), read.get(keys.REQUEUE, Requeue.AUTO)
    timeout = read.get(keys.CHECKPOINT_TIMEOUT, min(settings.checkpoint_timeout_seconds, settings.ceiling_seconds))
    deferral = read.get(keys.MAX_DEFERRAL, settings.max_deferral_seconds)
    estimated = read.get(keys.ESTIMATED_CHECKPOINT_TIME)
    return Plan(
        strategy=Strategy(str(strategy)),
        hint=hint if isinstance(hint, HttpHint) else AnnotationHint(),
        timeout_seconds=_seconds(timeout),
        max_deferral_seconds=min(_seconds(deferral), settings.max_deferral_seconds),
        estimated_seconds=None if estimated is None else _seconds(estimated),
        requeue=Requeue(str(requeue)),
    )


def _check_ceiling(
    read: Mapping[str, object], annotations: Mapping[str, str], settings: PolicySettings, prefix: str
) -> list[Violation]:
    """No right is gained by an annotation: the admin's ceilings bound what a workload may ask for."""
    limits = {keys.CHECKPOINT_TIMEOUT: settings.ceiling_seconds, keys.MAX_DEFERRAL: settings.max_deferral_seconds}
    found = []
    for key, limit in limits.items():
        seconds = read.get(key)
        if isinstance(seconds, int) and seconds > limit:
            detail = f"must be at most {duration.render(limit)}, the limit set for this cluster"
            found.append(Violation(annotation_path(prefix, key), Kind.INVALID, annotations[key], detail))
    return found


def _seconds(value: object) -> int:
    assert isinstance(value, int)
    return value


def _parse_strategy(text: str, path: str) -> object:
    return text if text in tuple(Strategy) else unsupported(path, text, Strategy)


def _parse_requeue(text: str, path: str) -> object:
    return text if text in tuple(Requeue) else unsupported(path, text, Requeue)


_READERS = {
    keys.CHECKPOINT: _parse_strategy,
    keys.CHECKPOINT_HINT: parse_hint,
    keys.CHECKPOINT_TIMEOUT: duration.parse,
    keys.MAX_DEFERRAL: duration.parse,
    keys.ESTIMATED_CHECKPOINT_TIME: duration.parse,
    keys.REQUEUE: _parse_requeue,
}
