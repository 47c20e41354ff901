"""Chapter 4, the main job: a training Job saves, is evicted, and its replacement resumes."""

from datetime import timedelta
from typing import Any

from mainjob import koordinator, promise, victim, workload
from mainjob.installation import Installation
from mainjob.narrator import Narrator
from mainjob.session import Background, Session
from reprieve_policy import keys
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_policy.verdict import quote

TITLE = "A training Job gets notice, saves its work, and resumes elsewhere"

OF_JOB = ("-l", "batch.kubernetes.io/job-name=training")
COLUMNS = victim.columns(
    NAME=".metadata.name",
    PHASE=".status.phase",
    DISRUPTIONTARGET=victim.DISRUPTION_COLUMN,
    EXIT=victim.EXIT_COLUMN,
)
INHERITED = (
    keys.PREEMPTED_COUNT,
    keys.FIRST_SUBMITTED_AT,
    keys.RESUME_FROM_CHECKPOINT,
    keys.LAST_CHECKPOINT_AT,
)


def run(installation: Installation, narrator: Narrator) -> str:
    """Soft-evict a training Job and follow it into its replacement."""
    session = Session(installation, narrator, "demo-training")
    session.make_namespace()
    narrator.say(
        f"A training Job on {installation.nodes.value}. Its program answers the hint, saves a "
        "file, and exits with 143 on SIGTERM, because it is not finished. Its backoffLimit is 0: "
        "one failure would end it."
    )
    first = workload.start_job(session)
    submitted = session.quiet.get("pod", first, "-n", session.namespace)["metadata"][
        "creationTimestamp"
    ]
    in_namespace = ("-n", session.namespace, *OF_JOB, "-w")
    with (
        session.watching("get", "pods", *in_namespace, *victim.VICTIMS) as phases,
        session.watching("get", "pods", *in_namespace, "-o", COLUMNS) as facts,
        victim.recording(session, first) as record,
    ):
        narrator.say("koord-descheduler marks the pod, with its own name and only its own rights.")
        koordinator.mark(session, first)
        victim.wait_until_gone(session, first)
        state = victim.last_state(session, record)
        second = workload.wait_for_pod(session, *OF_JOB, but=first)
    _check_victim(session, first, state, (phases, facts))
    _check_replacement(session, second, state, submitted)
    _check_job(session, second)
    return (
        "hinted, saved, deleted, replaced: the training resumed from its checkpoint, and no "
        "failure was counted"
    )


def _check_victim(
    session: Session, pod: str, state: Eviction, watched: tuple[Background, Background]
) -> None:
    session.narrator.say("Its Events:")
    events = victim.show_events(session, pod, "SoftEvictionCompleted")
    promise.says(
        events,
        "CheckpointRequested",
        "CheckpointAcknowledged",
        "CheckpointSaved",
        "SoftEvictionDeleting",
    )
    promise.keep(
        claim=state.checkpoint is not None,
        otherwise=f"{pod} was deleted without an acknowledged checkpoint",
    )
    assert state.checkpoint is not None
    promise.says(events, f"step {state.checkpoint.step}", quote(state.checkpoint.path or ""))
    session.narrator.say(
        "What a watch saw, and what a Job's controller reads (143 is 128 + SIGTERM):"
    )
    for background in watched:
        session.show_watched(background)
    phases, facts = (background.text for background in watched)
    promise.says(phases, "marked", "hinted", "checkpointing", "terminating")
    promise.says(facts, "PreemptionByReprieve", " 143")
    order = victim.deleted_at(session, pod) - state.checkpoint.saved_at
    promise.keep(claim=order > timedelta(0), otherwise=f"{pod} was deleted before it had saved")


def _check_replacement(session: Session, pod: str, state: Eviction, submitted: str) -> None:
    assert state.checkpoint is not None
    session.narrator.say("The replacement carries what its predecessor left:")
    fields = {
        key.removeprefix(keys.PREFIX).upper(): f".metadata.annotations.{victim.escaped(key)}"
        for key in INHERITED
    }
    session.run("get", "pod", pod, "-n", session.namespace, "-o", victim.columns(**fields))
    annotations = session.quiet.get("pod", pod, "-n", session.namespace)["metadata"]["annotations"]
    promise.same(keys.PREEMPTED_COUNT, annotations.get(keys.PREEMPTED_COUNT), "1")
    promise.same(
        keys.FIRST_SUBMITTED_AT,
        timestamp.parse(annotations.get(keys.FIRST_SUBMITTED_AT)),
        timestamp.parse(submitted),
    )
    promise.same(
        keys.RESUME_FROM_CHECKPOINT,
        annotations.get(keys.RESUME_FROM_CHECKPOINT),
        state.checkpoint.path,
    )
    log = workload.show_log(session, pod)
    promise.says(
        log,
        f"resuming from step {state.checkpoint.step}, saved in ",
        f"training from step {state.checkpoint.step} ",
    )


def _check_job(session: Session, pod: str) -> None:
    session.narrator.say("And no failure was counted against the Job:")
    session.run("get", "job", "training", "-n", session.namespace, "-o", "jsonpath={.status}")
    job: Any = session.quiet.get("job", "training", "-n", session.namespace)
    promise.same("the Job's failed pods", job["status"].get("failed", 0), 0)
    promise.same("the Job's active pods", job["status"].get("active"), 1)
    promise.same("the state of the replacement", victim.state_of(session, pod), None)
