"""Chapter 7: the operator is killed while a victim saves.

The victim gets no second hint and is not deleted early.
"""

from datetime import timedelta

from mainjob import koordinator, promise, victim, workload
from mainjob.installation import Installation
from mainjob.narrator import Narrator
from mainjob.session import Session
from realcluster.programs import OPERATOR

TITLE = "The operator is killed between the hint and the acknowledgement"

POD = "saves-meanwhile"
SAVE_SECONDS = 8.0  # longer than killing, restarting and the old lease take
TIMEOUT = {"reprieve.dev/checkpoint-timeout": "20s"}
ASKED = "asked for a checkpoint"


def run(installation: Installation, narrator: Narrator) -> str:
    """Kill the operator while a victim saves, start another one, and count hints and deletions."""
    session = Session(installation, narrator, "demo-crash")
    session.make_namespace()
    narrator.say(f"A pod that needs {SAVE_SECONDS:.0f} s to save is marked.")
    pod = workload.build_pod(session, POD, save_seconds=SAVE_SECONDS, annotations=TIMEOUT)
    workload.start_pods(session, pod)
    with workload.following(session, POD) as log, victim.recording(session, POD) as record:
        koordinator.mark(session, POD)
        before = victim.wait_for_phase(session, POD, "hinted", "checkpointing")
        session.wait("hint in the workload's log", lambda: ASKED in log.text)
        _kill(session)
        promise.keep(
            claim="saved step" not in log.text,
            otherwise="the workload had saved before the operator was killed",
        )
        installation.start(OPERATOR)
        narrator.say(
            f"Another operator is started (pid {installation.programs.pid(OPERATOR)}). When the "
            "first one's lease expires, it reads the victim's state from the pod and asks the "
            "workload for its progress."
        )
        victim.wait_until_gone(session, POD)
        after = victim.last_state(session, record)
    session.show_watched(log)
    events = victim.show_events(session, POD, "SoftEvictionCompleted")
    promise.same("hints in the workload's own log", log.text.count(ASKED), 1)
    promise.same("the number of the hint", (before.attempt, after.attempt), (1, 1))
    promise.same("the time of the hint", after.hinted_at, before.hinted_at)
    promise.same("the id of the eviction", after.eviction_id, before.eviction_id)
    promise.same("hints in Events", events.count("CheckpointRequested"), 1)
    assert after.checkpoint is not None
    deleted = victim.deleted_at(session, POD)
    early = deleted - after.checkpoint.saved_at
    promise.keep(claim=early > timedelta(0), otherwise=f"{POD} was deleted before it had saved")
    narrator.say(
        f"Acknowledged at {after.checkpoint.saved_at:%H:%M:%S.%f}, deleted at "
        f"{deleted:%H:%M:%S.%f}: the API server's audit log has one DELETE, after the "
        "acknowledgement."
    )
    return (
        "a new operator continued where the killed one stopped: one hint, one DELETE after the "
        "acknowledgement"
    )


def _kill(session: Session) -> None:
    pid = session.installation.programs.pid(OPERATOR)
    session.installation.programs.stop(OPERATOR, kill=True)
    session.narrator.show(f"kill -KILL {pid}    # {OPERATOR}", "")
