"""The answers to a review, in the API server's form: allowed, denied, patched, each with warnings."""

import base64
from collections.abc import Iterable, Sequence

import msgspec

from reprieve_policy.kube.objects import Resource
from reprieve_policy.verdict import Change, Entry, Gate, Verdict, Violation

from .review import API_VERSION

_NOT_FOUND, _NOT_NOW = 404, 429
_REASONS = {400: "BadRequest", 403: "Forbidden", 404: "NotFound", 429: "TooManyRequests"}


class _Cause(msgspec.Struct):
    reason: str
    message: str
    field: str


class _Details(msgspec.Struct, rename="camel", omit_defaults=True):
    causes: list[_Cause]
    retry_after_seconds: int | None = None


class _Status(msgspec.Struct):
    code: int
    reason: str
    message: str
    details: _Details
    status: str = "Failure"


class _Response(msgspec.Struct, rename="camel", omit_defaults=True):
    uid: str
    allowed: bool
    status: _Status | None = None
    patch: str | None = None
    patch_type: str | None = None
    warnings: Sequence[str] = ()


class _Review(msgspec.Struct, rename="camel"):
    response: _Response
    api_version: str = API_VERSION
    kind: str = "AdmissionReview"


_ENCODE = msgspec.json.Encoder().encode


def build_verdict(uid: str, verdict: Verdict) -> bytes:
    """Allow or deny as the rules say; every violation is also a cause."""
    status = None if verdict.is_allowed else _denial(verdict)
    return _ENCODE(_Review(_Response(uid, verdict.is_allowed, status, warnings=verdict.warnings)))


def build_allowed(uid: str, warnings: Sequence[str] = ()) -> bytes:
    """Allow, with nothing to say but what is warned of."""
    return _ENCODE(_Review(_Response(uid, allowed=True, warnings=warnings)))


def build_put_off(uid: str, violation: Violation, retry_after_seconds: int | None) -> bytes:
    """Deny for now; with a time, the API server sends the client a `Retry-After`."""
    return _deny_one(uid, violation, _NOT_NOW, retry_after_seconds)


def build_gone(uid: str, violation: Violation) -> bytes:
    """Deny as if the object were not there any more."""
    return _deny_one(uid, violation, _NOT_FOUND, None)


def _deny_one(uid: str, violation: Violation, code: int, retry_after_seconds: int | None) -> bytes:
    cause = _Cause(violation.kind.cause, violation.message, violation.path)
    status = _Status(code, _REASONS[code], str(violation), _Details([cause], retry_after_seconds))
    return _ENCODE(_Review(_Response(uid, allowed=False, status=status)))


def build_patched(uid: str, changes: Iterable[Change | Gate | Entry], resource: Resource) -> bytes:
    """Allow, and change this object."""
    operations = build_patch(changes, resource)
    if not operations:
        return build_allowed(uid)
    patch = base64.b64encode(_ENCODE(operations)).decode("ascii")
    return _ENCODE(_Review(_Response(uid, allowed=True, patch=patch, patch_type="JSONPatch")))


def build_patch(changes: Iterable[Change | Gate | Entry], resource: Resource) -> list[dict[str, object]]:
    """Return the changes as JSON patch. Where the object has no such map, one operation adds it with all its entries."""
    absent: dict[str, dict[str, str]] = {}
    made: set[str] = set()
    operations: list[dict[str, object]] = []
    for change in changes:
        if isinstance(change, Gate):
            operations.append(_gate_operation(change, resource))
            continue
        if isinstance(change, Entry):
            operations.append(_entry_operation(change, list_is_there=change.list_is_there or change.path in made))
            made.add(change.path)
            continue
        path = f"/metadata/{change.field}"
        if getattr(resource.metadata, change.field) is not None:
            operations.append({"op": "add", "path": f"{path}/{_escape(change.key)}", "value": change.value})
        elif path in absent:
            absent[path][change.key] = change.value
        else:
            absent[path] = {change.key: change.value}
            operations.append({"op": "add", "path": path, "value": absent[path]})
    return operations


def _entry_operation(entry: Entry, *, list_is_there: bool) -> dict[str, object]:
    if list_is_there:
        return {"op": "add", "path": f"{entry.path}/-", "value": entry.value}
    return {"op": "add", "path": entry.path, "value": [entry.value]}


def _gate_operation(gate: Gate, pod: Resource) -> dict[str, object]:
    path, value = "/spec/schedulingGates", {"name": gate.name}
    if pod.spec is None or pod.spec.schedulingGates is None:
        return {"op": "add", "path": path, "value": [value]}
    return {"op": "add", "path": f"{path}/-", "value": value}


def _denial(verdict: Verdict) -> _Status:
    causes = [_Cause(violation.kind.cause, violation.message, violation.path) for violation in verdict.violations]
    code = int(verdict.status)
    return _Status(code, _REASONS[code], verdict.message, _Details(causes))


def _escape(key: str) -> str:
    """Return a map's key as one step of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
