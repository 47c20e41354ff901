"""How a workload wants to be notified and how long it needs: the checkpoint annotations as a plan.

Without the annotation `checkpoint`, it counts as `auto` if a hint is declared and else as `none`,
so that ordinary pods never wait.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from reprieve_policy import keys
from reprieve_policy.config.annotation_values import LONGEST, Duration, Matches, OneOf, Value
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.values import duration
from reprieve_policy.verdict import Violation, ViolationKind, annotation_path


class Strategy(StrEnum):
    """Who makes the checkpoint. `manual` gets the hint too; its cost differs (document 001)."""

    AUTO = "auto"
    MANUAL = "manual"
    NONE = "none"


class Requeue(StrEnum):
    """Whether a replacement inherits the count of preemptions and the checkpoint."""

    AUTO = "auto"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class HttpHint:
    """POST to the pod's own IP. It has no host, so that a user cannot point Reprieve elsewhere."""

    port: int
    path: str


@dataclass(frozen=True, slots=True)
class GrpcHint:
    """A gRPC call to the pod's own IP."""

    port: int


@dataclass(frozen=True, slots=True)
class SignalHint:
    """A signal to the first process of a container.

    Without a handler, the signal ends the process, or is ignored if that is PID 1.
    """

    signal: str
    container: str


@dataclass(frozen=True, slots=True)
class FileHint:
    """The request is written to a file in a volume of the pod."""

    path: str


@dataclass(frozen=True, slots=True)
class AnnotationHint:
    """The request is written to an annotation; the workload reads it (downward API)."""


@dataclass(frozen=True, slots=True)
class SigtermHint:
    """No request: the workload saves on SIGTERM, and has the time for its save until SIGKILL."""


Hint = HttpHint | GrpcHint | SignalHint | FileHint | AnnotationHint | SigtermHint

DELIVERED_BY_OPERATOR = frozenset({HttpHint, GrpcHint, SignalHint, AnnotationHint, SigtermHint})
"""Hints that the operator delivers itself, the last one by its DELETE. For the others it needs the
agent; without one, it uses the annotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPlan:
    """What will be done with this pod when it must leave."""

    strategy: Strategy
    hint: Hint
    timeout_seconds: int
    max_deferral_seconds: int
    estimated_seconds: int | None = None
    requeue: Requeue = Requeue.AUTO
    sets_environment: bool = False
    """True if a replacement's containers get its annotations as environment variables too."""
    cleaners_before: tuple[str, ...] = ()
    """Finalizers whose owners clean up before SIGTERM: the DELETE waits until they are removed."""

    @property
    def gives_notice(self) -> bool:
        """True if the pod gets time to save, and a hint or SIGTERM at its beginning."""
        return self.strategy is not Strategy.NONE

    @property
    def saves_on_sigterm(self) -> bool:
        """True if the workload saves once SIGTERM ends it, and is not asked before."""
        return self.gives_notice and isinstance(self.hint, SigtermHint)

    @property
    def save_seconds(self) -> int:
        """How long a save takes at most: as declared, within the timeout."""
        if self.estimated_seconds is None:
            return self.timeout_seconds
        return min(self.estimated_seconds, self.timeout_seconds)


_PORT = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
_PATH = '/[!"$-~]*'
"""Printable ASCII without a fragment."""

_SIGNAL = "HUP|INT|QUIT|USR1|USR2"
"""Signals that a program may define for itself. TERM and KILL are how the pod ends."""
_CONTAINER = "[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_STEP = r"[A-Za-z0-9_-][A-Za-z0-9._-]*|\.[A-Za-z0-9_-][A-Za-z0-9._-]*|\.\.[A-Za-z0-9._-]+"
"""One step of a file's path, other than `.` and `..`."""

HINT = Matches(
    f"annotation:|(?P<sigterm>sigterm:)|http://:(?P<port>{_PORT})(?P<path>{_PATH})|grpc://:(?P<grpc>{_PORT})"
    rf"|signal://(?P<signal>{_SIGNAL})\?container=(?P<container>{_CONTAINER})"
    rf"|file://(?P<file>(?:/(?:{_STEP}))+)",
    'supported values: "http://:PORT/PATH", "grpc://:PORT", "signal://USR1?container=NAME", '
    '"file:///PATH", "annotation:", "sigterm:"',
    ViolationKind.UNSUPPORTED,
    LONGEST,
)

_FINALIZER = (
    "[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
"""A finalizer as the API server accepts it on a pod: `DOMAIN/NAME`."""
_CLEANERS = Matches(
    f"{_FINALIZER}(?: *, *{_FINALIZER})*",
    'must be finalizers, separated by commas, like "licences.example.com/release"',
    longest=LONGEST,
)

KEYS = (
    keys.CHECKPOINT,
    keys.CHECKPOINT_HINT,
    keys.CHECKPOINT_TIMEOUT,
    keys.MAX_DEFERRAL,
    keys.ESTIMATED_CHECKPOINT_TIME,
    keys.REQUEUE,
    keys.REQUEUE_ENV,
    keys.CLEANERS_BEFORE,
)
_TRUE = "true"
_LIMIT = ", the limit set for this cluster"


class _Limits(NamedTuple):
    """The settings that a plan depends on.

    Without this, the cache's key would be all settings, and a look-up would take ten times as long.
    """

    timeout_seconds: int
    ceiling_seconds: int
    max_deferral_seconds: int


def accepted_values(settings: PolicySettings) -> Mapping[str, Value[Any]]:
    """Return the values that each annotation accepts.

    An annotation gives no right: the admin's limits bound what it asks for.
    """
    return _values(_limits(settings))


def _limits(settings: PolicySettings) -> _Limits:
    return _Limits(
        settings.checkpoint_timeout_seconds, settings.ceiling_seconds, settings.max_deferral_seconds
    )


@lru_cache(maxsize=16)
def _values(limits: _Limits) -> Mapping[str, Value[Any]]:
    rows = (
        OneOf(tuple(Strategy)),
        HINT,
        Duration(limits.ceiling_seconds, _LIMIT),
        Duration(limits.max_deferral_seconds, _LIMIT),
        Duration(),
        OneOf(tuple(Requeue)),
        OneOf((_TRUE, "false")),
        _CLEANERS,
    )
    return dict(zip(KEYS, rows, strict=True))


def parse(
    annotations: Mapping[str, str], settings: PolicySettings, prefix: str = ""
) -> CheckpointPlan | tuple[Violation, ...]:
    """Read the plan of a pod or template, or return all its violations."""
    texts = tuple(map(annotations.get, KEYS))
    # The pods of one template have the same texts, so results are cached; never those of texts that
    # are too long to be valid.
    is_short = max(map(len, filter(None, texts)), default=0) <= LONGEST
    read = _read if is_short else _read.__wrapped__
    return read(texts, _limits(settings), prefix)


def read_leniently(annotations: Mapping[str, str], settings: PolicySettings) -> CheckpointPlan:
    """Read the plan of a pod that may be unvalidated: an unreadable value counts as absent."""
    plan = parse(annotations, settings)
    if isinstance(plan, CheckpointPlan):
        return plan
    bad = {violation.path for violation in plan}
    good = {key: text for key, text in annotations.items() if annotation_path("", key) not in bad}
    return read_leniently(good, settings)


def known_save_seconds(plan: CheckpointPlan, annotations: Mapping[str, str]) -> int | None:
    """Return how long a save takes: as declared, else as the last one of the replaced pod took.

    What it took counts up to the timeout. Without this, a user could write a long time to keep the
    pod: where nothing is known, the timeout counts.
    """
    if plan.estimated_seconds is not None:
        return plan.estimated_seconds
    took = duration.parse(annotations.get(keys.LAST_CHECKPOINT_TOOK, ""))
    return None if took is None else min(took, plan.timeout_seconds)


def is_finalizer(text: str) -> bool:
    """True for a finalizer that a pod may have and that is not Reprieve's own."""
    return re.fullmatch(_FINALIZER, text) is not None and text != keys.CLEANUP_FINALIZER


def parse_hint(text: str, path: str) -> Hint | Violation:
    """Return the hint that `text` names."""
    read = _read_hint if len(text) <= LONGEST else _read_hint.__wrapped__
    return read(text, path)


@lru_cache(maxsize=256)
def _read_hint(text: str, path: str) -> Hint | Violation:
    match = HINT.parse(text, path)
    return match if isinstance(match, Violation) else _hint(match)


@lru_cache(maxsize=256)
def _read(
    texts: Sequence[str | None], limits: _Limits, prefix: str
) -> CheckpointPlan | tuple[Violation, ...]:
    """Read the plan from the texts of `KEYS`, in that order."""
    accepted = _values(limits)
    given = {key: text for key, text in zip(KEYS, texts, strict=True) if text is not None}
    read = {
        key: accepted[key].parse(text, annotation_path(prefix, key)) for key, text in given.items()
    }
    return tuple(value for value in read.values() if isinstance(value, Violation)) or _build(
        read, limits
    )


def _build(read: Mapping[str, object], limits: _Limits) -> CheckpointPlan:
    hint = read.get(keys.CHECKPOINT_HINT)
    default = Strategy.NONE if hint is None else Strategy.AUTO
    strategy, requeue = read.get(keys.CHECKPOINT, default), read.get(keys.REQUEUE, Requeue.AUTO)
    timeout = read.get(keys.CHECKPOINT_TIMEOUT, min(limits.timeout_seconds, limits.ceiling_seconds))
    deferral = read.get(keys.MAX_DEFERRAL, limits.max_deferral_seconds)
    estimated = read.get(keys.ESTIMATED_CHECKPOINT_TIME)
    return CheckpointPlan(
        strategy=Strategy(str(strategy)),
        hint=_hint(hint) if isinstance(hint, re.Match) else AnnotationHint(),
        timeout_seconds=_seconds(timeout),
        max_deferral_seconds=min(_seconds(deferral), limits.max_deferral_seconds),
        estimated_seconds=None if estimated is None else _seconds(estimated),
        requeue=Requeue(str(requeue)),
        sets_environment=read.get(keys.REQUEUE_ENV) == _TRUE,
        cleaners_before=_cleaners(read.get(keys.CLEANERS_BEFORE)),
    )


def _hint(match: re.Match[str]) -> Hint:
    parts = match.groupdict()
    if parts["port"] is not None:
        return HttpHint(int(parts["port"]), parts["path"])
    if parts["grpc"] is not None:
        return GrpcHint(int(parts["grpc"]))
    if parts["signal"] is not None:
        return SignalHint(parts["signal"], parts["container"])
    if parts["sigterm"] is not None:
        return SigtermHint()
    return AnnotationHint() if parts["file"] is None else FileHint(parts["file"])


def _cleaners(match: object) -> tuple[str, ...]:
    """Return the finalizers without our own, which is removed only after the containers ended."""
    if not isinstance(match, re.Match):
        return ()
    names = (name.strip() for name in match[0].split(","))
    return tuple(dict.fromkeys(name for name in names if name != keys.CLEANUP_FINALIZER))


def _seconds(value: object) -> int:
    assert isinstance(value, int)
    return value
