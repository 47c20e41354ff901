"""The responses to a review, in the API server's form: allowed, denied, patched, with warnings."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus

import msgspec

from reprieve_policy.kube.objects import Resource
from reprieve_policy.verdict import (
    AnnotationRemoval,
    Change,
    GateAddition,
    ListAddition,
    SpecChange,
    Verdict,
    Violation,
)

from .review import API_VERSION

_REASONS: Mapping[int, str] = {
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.NOT_FOUND: "NotFound",
    HTTPStatus.TOO_MANY_REQUESTS: "TooManyRequests",
}
"""The API server's own reasons."""


class _Cause(msgspec.Struct):
    reason: str
    message: str
    field: str


class _Details(msgspec.Struct, rename="camel", omit_defaults=True):
    causes: list[_Cause]
    retry_after_seconds: int | None = None


class _ResponseStatus(msgspec.Struct):
    code: int
    reason: str
    message: str
    details: _Details
    status: str = "Failure"


class _ResponsePayload(msgspec.Struct, rename="camel", omit_defaults=True):
    uid: str
    allowed: bool
    status: _ResponseStatus | None = None
    patch: str | None = None
    patch_type: str | None = None
    warnings: Sequence[str] = ()


class _ResponseReview(msgspec.Struct, rename="camel"):
    response: _ResponsePayload
    api_version: str = API_VERSION
    kind: str = "AdmissionReview"


_ENCODE = msgspec.json.Encoder().encode


def build_verdict(uid: str, verdict: Verdict) -> bytes:
    """Allow or deny by the verdict; every violation is also a cause."""
    status = None if verdict.is_allowed else _denied_status(verdict)
    return _ENCODE(
        _ResponseReview(
            _ResponsePayload(uid, verdict.is_allowed, status, warnings=verdict.warnings)
        )
    )


def build_allowed(uid: str, warnings: Sequence[str] = ()) -> bytes:
    """Allow, with warnings."""
    return _ENCODE(_ResponseReview(_ResponsePayload(uid, allowed=True, warnings=warnings)))


def build_too_many_requests(
    uid: str, violation: Violation, retry_after_seconds: int | None
) -> bytes:
    """Deny for now; with a time, the API server sends the client `Retry-After`."""
    return _denied(uid, violation, HTTPStatus.TOO_MANY_REQUESTS, retry_after_seconds)


def build_not_found(uid: str, violation: Violation) -> bytes:
    """Deny as if the object did not exist any more."""
    return _denied(uid, violation, HTTPStatus.NOT_FOUND, None)


def _denied(
    uid: str, violation: Violation, code: HTTPStatus, retry_after_seconds: int | None
) -> bytes:
    cause = _Cause(violation.kind.cause, violation.message, violation.path)
    status = _ResponseStatus(
        int(code), _REASONS[code], str(violation), _Details([cause], retry_after_seconds)
    )
    return _ENCODE(_ResponseReview(_ResponsePayload(uid, allowed=False, status=status)))


def build_patched(uid: str, changes: Iterable[Change], resource: Resource) -> bytes:
    """Allow, and patch the object."""
    operations = build_patch(changes, resource)
    if not operations:
        return build_allowed(uid)
    patch = base64.b64encode(_ENCODE(operations)).decode("ascii")
    return _ENCODE(
        _ResponseReview(_ResponsePayload(uid, allowed=True, patch=patch, patch_type="JSONPatch"))
    )


def build_patch(changes: Iterable[Change], resource: Resource) -> list[dict[str, object]]:
    """Return the changes as a JSON patch.

    Where the object has no such map, one operation adds the map with all its entries.
    """
    absent: dict[str, dict[str, str]] = {}
    added_lists: set[str] = set()
    operations: list[dict[str, object]] = []
    for change in changes:
        if isinstance(change, GateAddition):
            operations.append(_gate_operation(change, resource))
            continue
        if isinstance(change, AnnotationRemoval):
            path = f"/metadata/annotations/{_escape(change.key)}"
            operations.append({"op": "remove", "path": path})
            continue
        if isinstance(change, SpecChange):
            operations.append({"op": "add", "path": f"/spec/{change.field}", "value": change.value})
            continue
        if isinstance(change, ListAddition):
            operations.append(
                _entry_operation(
                    change, list_exists=change.list_exists or change.path in added_lists
                )
            )
            added_lists.add(change.path)
            continue
        path = f"/metadata/{change.field}"
        if getattr(resource.metadata, change.field) is not None:
            operations.append(
                {"op": "add", "path": f"{path}/{_escape(change.key)}", "value": change.value}
            )
        elif path in absent:
            absent[path][change.key] = change.value
        else:
            absent[path] = {change.key: change.value}
            operations.append({"op": "add", "path": path, "value": absent[path]})
    return operations


def _entry_operation(entry: ListAddition, *, list_exists: bool) -> dict[str, object]:
    if list_exists:
        return {"op": "add", "path": f"{entry.path}/-", "value": entry.value}
    return {"op": "add", "path": entry.path, "value": [entry.value]}


def _gate_operation(gate: GateAddition, pod: Resource) -> dict[str, object]:
    path, value = "/spec/schedulingGates", {"name": gate.name}
    if pod.spec is None or pod.spec.schedulingGates is None:
        return {"op": "add", "path": path, "value": [value]}
    return {"op": "add", "path": f"{path}/-", "value": value}


def _denied_status(verdict: Verdict) -> _ResponseStatus:
    causes = [
        _Cause(violation.kind.cause, violation.message, violation.path)
        for violation in verdict.violations
    ]
    code = int(verdict.status)
    return _ResponseStatus(code, _REASONS[code], verdict.message, _Details(causes))


def _escape(key: str) -> str:
    """Escape the key of a map as one token of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
