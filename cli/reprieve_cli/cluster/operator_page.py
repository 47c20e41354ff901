"""What the operator's page `/ui` shows, as lines: victims, gangs, the queue, the last 24 hours.

The leader alone knows it. It is read through a port that the user forwards, with a token.
"""

import ipaddress
import json
import ssl
from collections.abc import Iterator, Mapping
from datetime import datetime
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from reprieve_cli.output.finding import counted, printable
from reprieve_policy.kube.values import timestamp

from .victim_table import minutes_and_seconds

Document = Mapping[str, Any]
_DATA_PATH = "/ui/data"
_TIMEOUT_SECONDS = 10.0


class PageError(Exception):
    """The page cannot be read; the message says why, for users."""


class Row(NamedTuple):
    """A row of a list: what it is about, and what is said of it."""

    namespace: str
    text: str


def is_forwarded(url: str) -> bool:
    """True for an HTTPS address of this machine, such as that of a forwarded port."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_here = host == "localhost" or ipaddress.ip_address(host).is_loopback
        has_port = parts.port is not None
    except ValueError:
        return False
    return parts.scheme == "https" and is_here and has_port


def read(url: str, token: str) -> Document:
    """Return the document of the leader; raise `PageError` where there is none."""
    parts = urlsplit(url)
    # The operator's certificate is its own. `kubectl port-forward` has checked that of the API
    # server, and what is forwarded leaves this machine in no other way.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # No proxy and no redirection: the token goes to this address only.
    connection = HTTPSConnection(
        parts.hostname or "", parts.port, timeout=_TIMEOUT_SECONDS, context=context
    )
    try:
        connection.request("GET", _DATA_PATH, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != HTTPStatus.OK:
            said = printable(body.decode(errors="replace").strip())
            raise PageError(f"{url}: {answer.status}: {said}")
        document: Document = json.loads(body)
    except (OSError, ValueError, HTTPException) as error:
        raise PageError(
            f"{url}: {error}: does `kubectl port-forward` run, for a leader with --ui=true?"
        ) from None
    finally:
        connection.close()
    if not document["is_leading"]:
        leader = document["leader"] or "not known"
        raise PageError(f"{document['identity']} does not lead: forward a port of {leader}")
    return document


def build_lines(document: Document, namespace: str | None, *, with_steps: bool) -> Iterator[str]:
    """Yield the page of one namespace, or of all (`None`), as lines."""
    now = _time(document["now"])
    count = counted(document["victim_count"], "victim")
    victims = _victims(document, now, with_steps=with_steps)
    sections = {
        f"{count}, as {document['identity']} sees them": victims,
        "gangs": _gangs(document, now),
        "queue": _queue(document, now),
        f"since {_clock(document['since'])}, at most 24 hours": _totals(document),
        "no longer victims": _ended(document),
    }
    for title, rows in sections.items():
        shown = [row.text for row in rows if namespace in (None, row.namespace)]
        yield f"{title}:" if shown else f"{title}: none shown"
        yield from (f"  {line}" for text in shown for line in text.splitlines())


def _victims(document: Document, now: datetime, *, with_steps: bool) -> Iterator[Row]:
    for victim in document["victims"]:
        parts = [
            _place(victim),
            victim["phase"],
            _left(victim["deadline"], now),
            f"gang {printable(victim['gang'])}" if victim["gang"] else "",
            f"by {printable(victim['initiator'])}" if victim["initiator"] else "",
            "STUCK" if victim["is_stuck"] else "",
        ]
        lines = ["  ".join(part for part in parts if part)]
        if with_steps:
            lines += [
                f"  {_clock(step['at'])}  {printable(step['reason'])}: {printable(step['note'])}"
                for step in victim["steps"]
            ]
        yield Row(victim["namespace"], "\n".join(lines))


def _gangs(document: Document, now: datetime) -> Iterator[Row]:
    for gang in document["gangs"]:
        parts = [
            _place(gang),
            gang["phase"],
            f"waits for {printable(gang['waits_for'])}",
            _left(gang["until"], now),
        ]
        yield Row(gang["namespace"], "  ".join(part for part in parts if part))


def _queue(document: Document, now: datetime) -> Iterator[Row]:
    for row in document["queue"]:
        parts = [
            f"{row['kind']} {_place(row)}",
            f"for room on {printable(row['node'])}" if row["node"] else "",
            f"waits for {printable(row['waits_for'])}",
            _left(row["until"], now),
        ]
        yield Row(row["namespace"], "  ".join(part for part in parts if part))


def _totals(document: Document) -> Iterator[Row]:
    for row in document["namespaces"]:
        yield Row(
            row["namespace"],
            f"{row['namespace']}  {counted(row['victims'], 'victim')}, "
            f"{row['saved']} saved ({row['kept_hours']:.2f} pod-hours kept), "
            f"{row['unsaved']} unsaved ({row['lost_hours']:.2f} lost), "
            f"cost {row['cost_hours']:.2f} device-hours",
        )


def _ended(document: Document) -> Iterator[Row]:
    for victim in document["ended"]:
        last = victim["steps"][-1]
        text = f"{_clock(last['at'])}  {_place(victim)}  {printable(victim['outcome'])}"
        yield Row(victim["namespace"], text)


def _place(row: Document) -> str:
    return printable(f"{row['namespace']}/{row['name']}" if row["namespace"] else row["name"])


def _left(until: str | None, now: datetime) -> str:
    return "" if until is None else f"{minutes_and_seconds(_time(until) - now)} left"


def _clock(text: str) -> str:
    return f"{_time(text):%H:%M:%S}"


def _time(text: str) -> datetime:
    found = timestamp.parse(text)
    if found is None:
        raise PageError(f"{printable(text)} is not a time: is the operator of another version?")
    return found
