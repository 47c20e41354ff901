"""Chapter 6: another controller's finalizer holds a victim, and Reprieve waits for it."""

import time

from mainjob import koordinator, promise, victim, workload
from mainjob.installation import Installation
from mainjob.narrator import Narrator
from mainjob.session import Session

TITLE = "Another controller's finalizer holds the victim until that controller is done"

POD, FINALIZER = "two-finalizers", "data-mover.example.com/upload"
CLEANER_SECONDS = 2.0  # the other controller's time after Reprieve names its finalizer
RELEASE = '{"metadata":{"finalizers":null}}'


def run(installation: Installation, narrator: Narrator) -> str:
    """Evict a pod that carries another controller's finalizer."""
    session = Session(installation, narrator, "demo-finalizers")
    session.make_namespace()
    narrator.say(
        f"A pod carries the finalizer {FINALIZER}: its owner moves data away before the pod "
        "disappears."
    )
    workload.start_pods(
        session, workload.build_pod(session, POD, save_seconds=0.2, finalizers=[FINALIZER])
    )
    koordinator.mark(session, POD)
    events = victim.show_events(session, POD, "WaitingForFinalizers")
    promise.says(events, "CheckpointSaved", FINALIZER)
    narrator.say(
        "Its container has ended. The object stays, and Reprieve leaves the finalizer alone."
    )
    shown = session.run("get", "pod", POD, "-n", session.namespace, "-o", _COLUMNS)
    promise.says(shown.stdout, FINALIZER)
    _check_held(session)
    narrator.say("The other controller is done and removes its finalizer.")
    session.run("patch", "pod", POD, "-n", session.namespace, "--type=merge", "-p", RELEASE)
    victim.wait_until_gone(session, POD)
    after = victim.show_events(session, POD, "SoftEvictionCompleted")
    promise.same("Events about its end", after.count("SoftEvictionCompleted"), 1)
    victim.deleted_at(session, POD)
    return (
        "another controller's finalizer held the victim, Reprieve said so, and the pod ended when "
        "that controller was done"
    )


def _check_held(session: Session) -> None:
    """Check that the object stays for as long as the other controller works."""
    deadline = time.monotonic() + CLEANER_SECONDS
    while time.monotonic() < deadline:
        found = session.quiet.find("pod", POD, "-n", session.namespace)
        held = found is not None and found["metadata"].get("finalizers") == [FINALIZER]
        promise.keep(
            claim=held, otherwise=f"{POD} disappeared before the other controller was done"
        )


_COLUMNS = victim.columns(
    NAME=".metadata.name",
    EVICTION=victim.PHASE_COLUMN,
    DELETED=".metadata.deletionTimestamp",
    EXIT=victim.EXIT_COLUMN,
    FINALIZERS=".metadata.finalizers",
)
