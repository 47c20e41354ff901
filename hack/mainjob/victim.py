"""A victim as the API server sees it: its state, its Events, and its requests in the audit log."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from realcluster.programs import NAMESPACE, OPERATOR
from reprieve_policy import keys
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import Eviction, Phase

from .promise import BrokenPromiseError
from .session import Background, Session

OPERATOR_USER = f"system:serviceaccount:{NAMESPACE}:{OPERATOR}"
GONE_SECONDS = 60.0


def columns(**fields: str) -> str:
    """Return the kubectl option that prints these fields as columns."""
    return "custom-columns=" + ",".join(f"{name}:{path}" for name, path in fields.items())


PHASE_COLUMN = r".metadata.labels.reprieve\.dev/soft-eviction"
EXIT_COLUMN = ".status.containerStatuses[0].state.terminated.exitCode"
DISRUPTION_COLUMN = '.status.conditions[?(@.type=="DisruptionTarget")].reason'

VICTIMS = ("-L", keys.SOFT_EVICTION)


@dataclass(frozen=True)
class Call:
    """One request that changed a pod, from the API server's audit log."""

    at: datetime
    verb: str
    user: str
    subresource: str


def state_of(session: Session, pod: str) -> Eviction | None:
    """Return the state that the pod carries, or None if it has none or does not exist."""
    found = session.quiet.find("pod", pod, "-n", session.namespace)
    text = found["metadata"].get("annotations", {}).get(keys.EVICTION) if found else None
    return eviction.parse(text) if text else None


def wait_for_phase(session: Session, pod: str, *phases: str) -> Eviction:
    """Wait until the victim is in one of these phases."""

    def reached() -> Eviction | None:
        state = state_of(session, pod)
        return state if state and state.phase in phases else None

    return session.wait(f"{' or '.join(phases)} {pod}", reached)


@contextlib.contextmanager
def recording(session: Session, pod: str) -> Iterator[Background]:
    """Record every state that a pod carries while the block runs.

    The last one may be very short.
    """
    state = f"jsonpath={{.metadata.annotations.{escaped(keys.EVICTION)}}}{{'\\n'}}"
    with session.watching("get", "pod", pod, "-n", session.namespace, "-w", "-o", state) as record:
        yield record


def last_state(session: Session, record: Background) -> Eviction:
    """Return the state with which a victim was deleted."""

    def deleted() -> Eviction | None:
        states = [eviction.parse(line) for line in record.text.splitlines()]
        return next((state for state in states if state and state.phase is Phase.TERMINATING), None)

    return session.wait("state with which it was deleted", deleted)


def escaped(key: str) -> str:
    """Return the key of a label or annotation as it is written in a path."""
    return key.replace(".", r"\.")


def wait_until_gone(session: Session, pod: str) -> None:
    """Wait until no pod has that name."""
    session.wait(
        f"end of {pod}",
        lambda: session.quiet.find("pod", pod, "-n", session.namespace) is None,
        GONE_SECONDS,
    )


def show_events(session: Session, pod: str, last: str) -> str:
    """Wait for the Event with reason `last`, show all Events of the victim, and return them."""

    def is_recorded() -> bool:
        return any(item.get("reason") == last for item in events_of(session, pod))

    session.wait(f"Event {last}", is_recorded, 30)
    return session.run(
        "get",
        "events",
        "-n",
        session.namespace,
        f"--field-selector=involvedObject.name={pod}",
        *_EVENT_COLUMNS,
    ).stdout


def events_of(session: Session, pod: str) -> list[Any]:
    """Return the Events of a pod."""
    found = session.quiet.get(
        "events", "-n", session.namespace, f"--field-selector=involvedObject.name={pod}"
    )
    return list(found["items"])


def calls_on(session: Session, pod: str, verb: str = "") -> list[Call]:
    """Return the requests that changed a pod, in order."""
    return [call for call in _calls(session, pod) if verb in ("", call.verb)]


def deleted_at(session: Session, pod: str) -> datetime:
    """Return when the operator deleted the pod; raise unless it did so exactly once."""
    deletes = [call for call in calls_on(session, pod, "delete") if call.user == OPERATOR_USER]
    if len(deletes) != 1:
        raise BrokenPromiseError(f"the operator deleted {pod} {len(deletes)} times, not once")
    return deletes[0].at


def _calls(session: Session, pod: str) -> Iterator[Call]:
    assert session.installation.audit_log is not None
    with session.installation.audit_log.open() as lines:
        for line in lines:
            # Most lines are about other pods: decoding only these lines is a hundred times quicker.
            if f'"{pod}"' in line and f'"{session.namespace}"' in line:
                yield from _call_of(json.loads(line), session, pod)


def _call_of(entry: Any, session: Session, pod: str) -> Iterator[Call]:
    target, at = entry["objectRef"], timestamp.parse(entry["requestReceivedTimestamp"])
    # Entries of stage RequestReceived, also written for the operator, may never have been executed.
    code = entry.get("responseStatus", {}).get("code")
    is_done = code is not None and code < HTTPStatus.MULTIPLE_CHOICES
    is_it = (target["resource"], target.get("namespace"), target.get("name")) == (
        "pods",
        session.namespace,
        pod,
    )
    # An earlier run had a pod of the same name.
    if is_it and is_done and at is not None and at > session.began_at:
        who = entry.get("impersonatedUser", entry["user"])["username"]
        yield Call(at, entry["verb"], who, target.get("subresource", ""))


_EVENT_COLUMNS = (
    "--sort-by=.metadata.resourceVersion",
    "-o",
    columns(TYPE=".type", REASON=".reason", MESSAGE=".message"),
)
