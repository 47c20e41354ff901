"""Handles requests: delivers a request at once, and answers polls with the workload's answer file.

Of itself, the agent only reports that a request was delivered: the workload acknowledges it. The
state is in the request's file, so that a restarted agent neither forgets a request nor delivers it
twice.
"""

import json
from collections.abc import Callable
from http import HTTPStatus

from .http_message import HttpRequest, HttpResponse
from .request_files import MAX_ANSWER, Document, RequestFiles
from .signal_sender import SignalSender, UndeliverableError

_MAX_ID = 256
_FIELDS = frozenset(
    {
        "version",
        "id",
        "attempt",
        "deadline",
        "reason",
        "preemptionClass",
        "mayExtend",
        "cancelled",
    }
)
"""The contract's fields of a request; each is a text, a number or a boolean."""
_SCALARS = (str, int, float)
_IDLE: Document = {"state": "idle"}

Log = Callable[..., None]


class CheckpointHandler:
    """Accepts requests, and reports their progress."""

    def __init__(self, files: RequestFiles, sender: SignalSender | None, log: Log) -> None:
        self._files = files
        self._sender = sender
        self._log = log
        self._current_request = self._read_current_request()
        """The request in the file, unless it is cancelled.

        The workload may read it there even if no signal was sent.
        """
        self._is_delivered = self._was_delivered()

    def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer one HTTP request."""
        if request.method == "GET":
            return self._status()
        document = _parse(request.body)
        if document is None:
            return HttpResponse.error(HTTPStatus.BAD_REQUEST, "must be a JSON object with an id")
        return self._accept(document) if request.method == "POST" else self._cancel(document)

    def _read_current_request(self) -> Document | None:
        """Return the request that an earlier process wrote."""
        request = self._files.read_request()
        is_open = request is not None and _is_request(request) and not request.get("cancelled")
        return request if is_open else None

    def _was_delivered(self) -> bool:
        """True unless an earlier process was killed between the file and the signal."""
        if self._current_request is None or self._sender is None:
            return self._current_request is not None
        return self._files.read_delivery() == _delivery_id(self._current_request)

    def _accept(self, document: Document) -> HttpResponse:
        if not _is_request(document):
            return HttpResponse.error(HTTPStatus.BAD_REQUEST, "must have an attempt")
        if (
            not self._is_delivered
            or self._current_request is None
            or _delivery_id(self._current_request) != _delivery_id(document)
        ):
            try:
                self._deliver(document)
            except UndeliverableError as error:
                self._log("request not delivered", id=document["id"], error=str(error))
                return HttpResponse.error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        return self._status()

    def _deliver(self, document: Document) -> None:
        if self._current_request is None or self._current_request["id"] != document["id"]:
            # An answer that is there after the request is about this request.
            self._files.delete_answer()
        self._files.write_request(document)
        self._current_request, self._is_delivered = document, False
        pid = None
        if self._sender is not None:
            pid = self._sender.send()
            self._files.write_delivery(_delivery_id(document))
        self._is_delivered = True
        self._log("request delivered", id=document["id"], attempt=document["attempt"], pid=pid)

    def _cancel(self, document: Document) -> HttpResponse:
        """Mark the current request as cancelled, so that the workload goes on; ignore others."""
        if self._current_request is not None and self._current_request["id"] == document["id"]:
            self._files.write_request({**document, "cancelled": True})
            self._current_request, self._is_delivered = None, False
            self._log("request cancelled", id=document["id"])
        return HttpResponse.json(_IDLE)

    def _status(self) -> HttpResponse:
        """Return the workload's answer, even without a signal: it may have read the file."""
        if self._current_request is None:
            return HttpResponse.json(_IDLE)
        request_id, answer = self._current_request["id"], self._files.read_answer()
        if (
            answer is not None
            and answer.document is not None
            and answer.document.get("id") in (None, request_id)
        ):
            return HttpResponse(
                HTTPStatus.OK, _with_request_id(answer.text, answer.document, request_id)
            )
        if not self._is_delivered:
            return HttpResponse.json(_IDLE)
        if answer is not None and answer.document is None and answer.is_complete:
            # Return the text unchanged, so that its author gets the error.
            return HttpResponse(HTTPStatus.OK, answer.text)
        return HttpResponse.json({"state": "delivered", "id": request_id})


def _with_request_id(text: bytes, answer: Document, request_id: object) -> bytes:
    """Return the answer with the request's id; unchanged if it already has one.

    Without this, a poll for a request that never arrived here would return the answer to an earlier
    request as its own.
    """
    if answer.get("id") is not None:
        return text
    document = {**answer, "id": request_id}
    # UTF-8 cannot encode half of a surrogate pair; as an escape it is what the workload wrote.
    named = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "backslashreplace"
    )
    return named if len(named) <= MAX_ANSWER else text


def _parse(body: bytes) -> Document | None:
    """Return the contract's fields of a request, `None` for what is none.

    Every client that reaches the pod may send one. What is nested cannot be written again at any
    depth at which it can be read.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or not _has_id(document):
        return None
    return {
        name: value
        for name, value in document.items()
        if name in _FIELDS and isinstance(value, _SCALARS)
    }


def _has_id(document: Document) -> bool:
    request_id = document.get("id")
    return isinstance(request_id, str) and 0 < len(request_id) <= _MAX_ID


def _is_request(document: Document) -> bool:
    attempt = document.get("attempt")
    return _has_id(document) and type(attempt) is int and attempt > 0


def _delivery_id(document: Document) -> str:
    """Return the id of a delivery: each attempt of a request is delivered once."""
    return json.dumps([document["id"], document["attempt"]])
