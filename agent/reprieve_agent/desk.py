"""What a request means: it is delivered at once, and from then on the answer is whatever the workload has written.

That it was delivered is all that the agent says of itself: an acknowledgement is the workload's. What is known survives the
agent in the request's file, so that one that is started again neither forgets a request nor delivers it twice.
"""

import json
from collections.abc import Callable
from http import HTTPStatus

from .exchange import HttpRequest, HttpResponse
from .mailbox import MAX_ANSWER, Document, RequestFiles
from .signals import SignalSender, UndeliverableError

_MAX_ID = 256
_IDLE: Document = {"state": "idle"}

Log = Callable[..., None]


class CheckpointHandler:
    """Takes requests in, and tells how far they are."""

    def __init__(self, files: RequestFiles, sender: SignalSender | None, log: Log) -> None:
        self._files = files
        self._signaller = sender
        self._log = log
        self._current_request = self._read_current_request()
        """The request that stands in its file, not taken back: the workload may read it there, whatever became of the signal."""
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
        """Return the request that was written before this process began."""
        found = self._files.read_request()
        is_open = found is not None and _is_request(found) and not found.get("cancelled")
        return found if is_open else None

    def _was_delivered(self) -> bool:
        """True unless the process was killed between the file and the signal."""
        if self._current_request is None or self._signaller is None:
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
                self._log("not delivered", id=document["id"], error=str(error))
                return HttpResponse.error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        return self._status()

    def _deliver(self, document: Document) -> None:
        if self._current_request is None or self._current_request["id"] != document["id"]:
            # So that whatever stands there once the request does is about it.
            self._files.delete_answer()
        self._files.write_request(document)
        self._current_request, self._is_delivered = document, False
        pid = None
        if self._signaller is not None:
            pid = self._signaller.send()
            self._files.write_delivery(_delivery_id(document))
        self._is_delivered = True
        self._log("delivered", id=document["id"], attempt=document["attempt"], pid=pid)

    def _cancel(self, document: Document) -> HttpResponse:
        """Tell the workload that it may go on; a request that is not the current one is nobody's any more."""
        if self._current_request is not None and self._current_request["id"] == document["id"]:
            self._files.write_request({**document, "cancelled": True})
            self._current_request, self._is_delivered = None, False
            self._log("taken back", id=document["id"])
        return HttpResponse.json(_IDLE)

    def _status(self) -> HttpResponse:
        """Return what the workload has answered, also where no signal reached it: it may have found the file by itself."""
        if self._current_request is None:
            return HttpResponse.json(_IDLE)
        asked, answer = self._current_request["id"], self._files.read_answer()
        if (
            answer is not None
            and answer.document is not None
            and answer.document.get("id") in (None, asked)
        ):
            return HttpResponse(
                HTTPStatus.OK, _with_request_id(answer.text, answer.document, asked)
            )
        if not self._is_delivered:
            return HttpResponse.json(_IDLE)
        if answer is not None and answer.document is None and answer.is_complete:
            # As it is, so that its author is told what is wrong with it.
            return HttpResponse(HTTPStatus.OK, answer.text)
        return HttpResponse.json({"state": "delivered", "id": asked})


def _with_request_id(text: bytes, answer: Document, asked: object) -> bytes:
    """Return the answer with the id of the request that it is to, as it is where it says that itself.

    Without this, whoever asks about a request that never came here would take the answer to an earlier one for his.
    """
    if answer.get("id") is not None:
        return text
    named = json.dumps({**answer, "id": asked}, separators=(",", ":"), ensure_ascii=False)
    # Half a surrogate pair has no bytes of its own; as an escape it is what the workload wrote.
    found = named.encode("utf-8", "backslashreplace")
    return found if len(found) <= MAX_ANSWER else text


def _parse(body: bytes) -> Document | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and _has_id(document) else None


def _has_id(document: Document) -> bool:
    found = document.get("id")
    return isinstance(found, str) and 0 < len(found) <= _MAX_ID


def _is_request(document: Document) -> bool:
    attempt = document.get("attempt")
    return _has_id(document) and type(attempt) is int and attempt > 0


def _delivery_id(document: Document) -> str:
    """Return what a delivery is known by: an attempt is delivered once."""
    return json.dumps([document["id"], document["attempt"]])
