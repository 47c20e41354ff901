"""What a request means: it is delivered at once, and from then on the answer is whatever the workload has written.

That it was delivered is all that the agent says of itself: an acknowledgement is the workload's. What is known survives the
agent in the request's file, so that one that is started again neither forgets a request nor delivers it twice.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus

from .exchange import Request, Response
from .mailbox import Document, Mailbox
from .signals import Signaller, UndeliverableError

_MAX_ID = 256
_IDLE: Document = {"state": "idle"}

Log = Callable[..., None]


class Desk:
    """Takes requests in, and tells how far they are."""

    def __init__(self, mailbox: Mailbox, signaller: Signaller | None, log: Log) -> None:
        self._mailbox = mailbox
        self._signaller = signaller
        self._log = log
        self._current: Document | None = self._recall()
        """What stands in the request's file, unless it was taken back."""
        # Between the file and the signal, the process may have been killed.
        self._is_delivered = signaller is None or (
            self._current is not None and mailbox.last_delivery() == _name(self._current)
        )

    def handle(self, request: Request) -> Response:
        """Answer one HTTP request."""
        if request.method == "GET":
            return self._look()
        document = _parse(request.body)
        if document is None:
            return Response.refusal(HTTPStatus.BAD_REQUEST, "must be a JSON object with an id")
        return self._ask(document) if request.method == "POST" else self._take_back(document)

    def _recall(self) -> Document | None:
        """Return the request that was written before this process began."""
        found = self._mailbox.read()
        return found if found is not None and _is_request(found) else None

    def _ask(self, document: Document) -> Response:
        if not _is_request(document):
            return Response.refusal(HTTPStatus.BAD_REQUEST, "must have an attempt")
        is_known = self._current is not None and _name(self._current) == _name(document)
        if not (is_known and self._is_delivered):
            try:
                self._deliver(document)
            except UndeliverableError as error:
                self._log("not delivered", id=document["id"], error=str(error))
                return Response.refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        return self._look()

    def _deliver(self, document: Document) -> None:
        if self._current is None or self._current["id"] != document["id"]:
            self._mailbox.discard_answer()
        self._mailbox.write(document)
        # Whoever reads the file may answer, and be told that it is taken back, whether a signal reaches him or not.
        self._current, self._is_delivered = document, False
        pid = None
        if self._signaller is not None:
            pid = self._signaller.send()
            self._mailbox.note_delivery(_name(document))
        self._is_delivered = True
        self._log("delivered", id=document["id"], attempt=document["attempt"], pid=pid)

    def _take_back(self, document: Document) -> Response:
        """Tell the workload that it may go on; a request that is not the current one is nobody's any more."""
        if self._current is not None and self._current["id"] == document["id"]:
            self._mailbox.write({**document, "cancelled": True})
            self._current = None
            self._log("taken back", id=document["id"])
        return Response.json(_IDLE)

    def _look(self) -> Response:
        if self._current is None:
            return Response.json(_IDLE)
        answer, name = self._mailbox.read_answer(), {"id": self._current["id"]}
        # Where it could not be delivered, it is to be asked again.
        delivered = Response.json({"state": "delivered", **name} if self._is_delivered else _IDLE)
        if answer is None:
            return delivered
        if answer.document is None:
            # As it is, so that its author is told what is wrong with it.
            return Response(HTTPStatus.OK, answer.text) if answer.is_settled else delivered
        if answer.document.get("id") is None:
            # One to an earlier request was discarded.
            with suppress(RecursionError):
                return Response.json({**answer.document, **name})
            return Response(HTTPStatus.OK, answer.text)
        return Response(HTTPStatus.OK, answer.text) if answer.document["id"] == name["id"] else delivered


def _parse(body: bytes) -> Document | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and _is_named(document) else None


def _is_named(document: Document) -> bool:
    found = document.get("id")
    return isinstance(found, str) and 0 < len(found) <= _MAX_ID


def _is_request(document: Document) -> bool:
    attempt = document.get("attempt")
    return _is_named(document) and type(attempt) is int and attempt > 0


def _name(document: Document) -> str:
    """Return what a delivery is known by: an attempt is delivered once."""
    return json.dumps([document["id"], document["attempt"]])
