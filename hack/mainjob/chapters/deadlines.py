"""Chapter 5: three victims at once: one never answers, one is slow, one has nothing to save."""

import re
from datetime import datetime

from mainjob import koordinator, promise, victim, workload
from mainjob.installation import Installation
from mainjob.narrator import Narrator
from mainjob.session import Background, Session
from realcluster.programs import OPERATOR
from reprieve_policy import keys
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle.eviction import CheckpointOutcome

TITLE = "A silent victim is deleted at its deadline; a slow one gets one extension"

STUBBORN, SLOW, PLAIN = "never-answers", "slow", "nothing-to-save"
TIMEOUT_SECONDS = 8
SLOW_SECONDS = 9  # longer than the timeout, shorter than one and a half timeouts
GRACE_SECONDS = 3  # the demo's cap, shorter than the pods' own 30 s
SLACK_SECONDS = 60.0  # for a busy machine; a second is usual
GRACE_SLACK_SECONDS = 15.0  # the same, and because the kubelet's times are whole seconds
COLUMNS = victim.columns(
    NAME=".metadata.name",
    GRACE=".metadata.deletionGracePeriodSeconds",
    EXIT=victim.EXIT_COLUMN,
    ENDED=".status.containerStatuses[0].state.terminated.finishedAt",
)
FAILED = "reprieve_preemption_failed_checkpoint_total"


def run(installation: Installation, narrator: Narrator) -> str:
    """Mark all three pods at once and check the end of each."""
    session = Session(installation, narrator, "demo-deadlines")
    session.make_namespace()
    narrator.say(
        f"Three pods with the same program. {STUBBORN} neither answers nor reacts to SIGTERM; "
        f"{SLOW} needs {SLOW_SECONDS} s to save, but has {TIMEOUT_SECONDS}; {PLAIN} declares "
        "checkpoint: none. All are marked at once."
    )
    timeout = {keys.CHECKPOINT_TIMEOUT: f"{TIMEOUT_SECONDS}s"}
    workload.start_pods(
        session,
        workload.build_pod(session, STUBBORN, mode="stubborn", annotations=timeout),
        workload.build_pod(session, SLOW, save_seconds=SLOW_SECONDS, annotations=timeout),
        workload.build_pod(
            session, PLAIN, annotations={keys.CHECKPOINT: "none", keys.CHECKPOINT_HINT: None}
        ),
    )
    failed_before = _failed(installation)
    watch = ("get", "pods", "-n", session.namespace, "-w")
    with (
        session.watching(*watch, *victim.VICTIMS) as phases,
        session.watching(*watch, "-o", COLUMNS) as facts,
    ):
        marked = {name: _mark(session, name) for name in (PLAIN, STUBBORN, SLOW)}
        for name in (PLAIN, SLOW, STUBBORN):
            victim.wait_until_gone(session, name)
    for background in (phases, facts):
        session.show_watched(background)
    _check_plain(session, marked[PLAIN])
    _check_slow(session, marked[SLOW], phases)
    _check_stubborn(session, marked[STUBBORN], facts)
    _check_counted(session, failed_before)
    return (
        "no answer: timeout, SIGTERM, grace, SIGKILL, a failed checkpoint; slow: one extension, "
        "then saved; none: at once"
    )


def _mark(session: Session, pod: str) -> datetime:
    koordinator.mark(session, pod)
    marks = [
        call for call in victim.calls_on(session, pod, "patch") if call.user == koordinator.USER
    ]
    promise.keep(claim=bool(marks), otherwise=f"the audit log has no mark of {pod}")
    return marks[-1].at


def _check_plain(session: Session, marked: datetime) -> None:
    waited = (victim.deleted_at(session, PLAIN) - marked).total_seconds()
    session.narrator.say(f"{PLAIN} was deleted {waited:.1f} s after its mark, without a hint.")
    promise.within(f"from the mark of {PLAIN} to its DELETE", waited, 0, SLACK_SECONDS)
    events = victim.show_events(session, PLAIN, "SoftEvictionCompleted")
    promise.keep(claim="CheckpointRequested" not in events, otherwise=f"{PLAIN} was hinted")
    promise.says(events, str(CheckpointOutcome.SKIPPED))


def _check_slow(session: Session, marked: datetime, phases: Background) -> None:
    waited = (victim.deleted_at(session, SLOW) - marked).total_seconds()
    session.narrator.say(
        f"{SLOW} had {waited:.1f} s instead of {TIMEOUT_SECONDS}: extended once, because it "
        "answered."
    )
    events = victim.show_events(session, SLOW, "SoftEvictionCompleted")
    promise.same("extensions", events.count("CheckpointExtended"), 1)
    promise.says(events, "CheckpointSaved")
    promise.says(phases.text, "extended")
    promise.within(
        f"from the mark of {SLOW} to its DELETE",
        waited,
        TIMEOUT_SECONDS,
        TIMEOUT_SECONDS * 1.5 + SLACK_SECONDS,
    )


def _check_stubborn(session: Session, marked: datetime, facts: Background) -> None:
    deleted = victim.deleted_at(session, STUBBORN)
    waited = (deleted - marked).total_seconds()
    ended = re.search(rf"^{STUBBORN} .* 137 +(\S+)", facts.text, re.MULTILINE)
    promise.keep(
        claim=ended is not None, otherwise=f"no watch saw {STUBBORN} end with 137, 128 + SIGKILL"
    )
    assert ended is not None
    killed = timestamp.parse(ended[1])
    assert killed is not None
    grace = (killed - deleted.replace(microsecond=0)).total_seconds()
    session.narrator.say(
        f"After {waited:.1f} s, {STUBBORN} got SIGTERM; {grace:.0f} s later (the grace is "
        f"{GRACE_SECONDS}), SIGKILL ended it: exit code 137."
    )
    events = victim.show_events(session, STUBBORN, "SoftEvictionCompleted")
    promise.says(
        events,
        "CheckpointRequested",
        "CheckpointUnanswered",
        "SIGKILL after 3s",
        str(CheckpointOutcome.UNRESPONSIVE),
    )
    promise.within(
        f"from the mark of {STUBBORN} to its DELETE",
        waited,
        TIMEOUT_SECONDS,
        TIMEOUT_SECONDS + SLACK_SECONDS,
    )
    promise.within(
        f"the grace of {STUBBORN}", grace, GRACE_SECONDS - 1, GRACE_SECONDS + GRACE_SLACK_SECONDS
    )


def _check_counted(session: Session, before: float) -> None:
    session.narrator.say("The operator counts this one, and no other, as a failed checkpoint:")
    text = session.installation.programs.read(OPERATOR, "/metrics")
    lines = [
        line
        for line in text.splitlines()
        if line.startswith((FAILED, "reprieve_preemptions_total"))
    ]
    own = "\n".join(line for line in lines if f'"{session.namespace}"' in line)
    metrics = session.installation.programs.url(OPERATOR, "/metrics")
    session.narrator.show(f"curl -s {metrics} | grep {session.namespace}", own)
    promise.same("failed checkpoints", _failed(session.installation) - before, 1.0)


def _failed(installation: Installation) -> float:
    """Return how many failed checkpoints the operator has counted in all namespaces."""
    text = installation.programs.read(OPERATOR, "/metrics")
    return sum(
        float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(FAILED + "{")
    )
