"""Chapter 4, the main job: a training Job saves, is evicted, and its replacement resumes."""

from datetime import timedelta
from typing import Any

from mainjob import koordinator, promise, victim, workload
from mainjob.narrator import Narrator
from mainjob.scene import Background, Scene
from mainjob.world import World
from reprieve_policy import keys
from reprieve_policy.kube import timestamp
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


def tell(world: World, narrator: Narrator) -> str:
    """Soft-evict a training Job and follow it into its replacement."""
    scene = Scene(world, narrator, "demo-training")
    scene.make_namespace()
    narrator.say(
        f"A training Job on {world.nodes.value}. Its program answers the hint, saves a file, and "
        "exits "
        "with 143 on SIGTERM, because it is not finished. Its backoffLimit is 0: one failure would "
        "end it."
    )
    first = workload.start_job(scene)
    submitted = scene.quiet.get("pod", first, "-n", scene.namespace)["metadata"][
        "creationTimestamp"
    ]
    in_namespace = ("-n", scene.namespace, *OF_JOB, "-w")
    with (
        scene.watching("get", "pods", *in_namespace, *victim.VICTIMS) as story,
        scene.watching("get", "pods", *in_namespace, "-o", COLUMNS) as facts,
        victim.recording(scene, first) as record,
    ):
        narrator.say("koord-descheduler marks the pod, with its own name and only its own rights.")
        koordinator.mark(scene, first)
        victim.wait_until_gone(scene, first)
        state = victim.last_state(scene, record)
        second = workload.wait_for_pod(scene, *OF_JOB, but=first)
    _check_victim(scene, first, state, (story, facts))
    _check_replacement(scene, second, state, submitted)
    _check_job(scene, second)
    return (
        "hinted, saved, deleted, replaced: the training resumed from its checkpoint, and no "
        "failure was counted"
    )


def _check_victim(
    scene: Scene, pod: str, state: Eviction, watched: tuple[Background, Background]
) -> None:
    scene.narrator.say("Its Events:")
    told = victim.show_events(scene, pod, "SoftEvictionCompleted")
    promise.says(
        told,
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
    promise.says(told, f"step {state.checkpoint.step}", quote(state.checkpoint.path or ""))
    scene.narrator.say(
        "What a watch saw, and what a Job's controller reads (143 is 128 + SIGTERM):"
    )
    for background in watched:
        scene.show_watched(background)
    story, facts = (background.text for background in watched)
    promise.says(story, "marked", "hinted", "checkpointing", "terminating")
    promise.says(facts, "PreemptionByReprieve", " 143")
    order = victim.deleted_at(scene, pod) - state.checkpoint.saved_at
    promise.keep(claim=order > timedelta(0), otherwise=f"{pod} was deleted before it had saved")


def _check_replacement(scene: Scene, pod: str, state: Eviction, submitted: str) -> None:
    assert state.checkpoint is not None
    scene.narrator.say("The replacement carries what its predecessor left:")
    fields = {
        key.removeprefix(keys.PREFIX).upper(): f".metadata.annotations.{victim.escaped(key)}"
        for key in INHERITED
    }
    scene.run("get", "pod", pod, "-n", scene.namespace, "-o", victim.columns(**fields))
    annotations = scene.quiet.get("pod", pod, "-n", scene.namespace)["metadata"]["annotations"]
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
    log = workload.show_log(scene, pod)
    promise.says(
        log,
        f"resuming from step {state.checkpoint.step}, saved in ",
        f"training from step {state.checkpoint.step} ",
    )


def _check_job(scene: Scene, pod: str) -> None:
    scene.narrator.say("And no failure was counted against the Job:")
    scene.run("get", "job", "training", "-n", scene.namespace, "-o", "jsonpath={.status}")
    job: Any = scene.quiet.get("job", "training", "-n", scene.namespace)
    promise.same("the Job's failed pods", job["status"].get("failed", 0), 0)
    promise.same("the Job's active pods", job["status"].get("active"), 1)
    promise.same("the state of the replacement", victim.state_of(scene, pod), None)
