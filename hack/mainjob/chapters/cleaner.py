"""Chapter 6: another cleaner holds a victim with its own finalizer, and Reprieve waits for it without touching it."""

import time

from mainjob import koordinator, promise, victim, workload
from mainjob.narrator import Narrator
from mainjob.scene import Scene
from mainjob.world import World

TITLE = "Another cleaner's finalizer holds the victim until that cleaner is done"

POD, FINALIZER = "two-cleaners", "data-mover.example.com/upload"
CLEANER_SECONDS = 2.0  # what the other cleaner takes once Reprieve has said whom it waits for
RELEASE = '{"metadata":{"finalizers":null}}'


def tell(world: World, narrator: Narrator) -> str:
    """Evict a pod that carries a finalizer of somebody else."""
    scene = Scene(world, narrator, "demo-cleaners")
    scene.make_namespace()
    narrator.say(
        f"A pod carries the finalizer {FINALIZER}: somebody wants to move its data away before it is forgotten."
    )
    workload.start_pods(
        scene, workload.build_pod(scene, POD, save_seconds=0.2, finalizers=[FINALIZER])
    )
    koordinator.mark(scene, POD)
    told = victim.show_events(scene, POD, "WaitingForFinalizers")
    promise.says(told, "CheckpointSaved", FINALIZER)
    narrator.say(
        "Its container has ended, the object stays, and Reprieve does not touch what is not its own."
    )
    shown = scene.run("get", "pod", POD, "-n", scene.namespace, "-o", _COLUMNS)
    promise.says(shown.stdout, FINALIZER)
    _check_held(scene)
    narrator.say("The other cleaner is done and takes its finalizer away.")
    scene.run("patch", "pod", POD, "-n", scene.namespace, "--type=merge", "-p", RELEASE)
    victim.wait_until_gone(scene, POD)
    after = victim.show_events(scene, POD, "SoftEvictionCompleted")
    promise.same("times that its end was told", after.count("SoftEvictionCompleted"), 1)
    victim.deleted_at(scene, POD)
    return "another cleaner's finalizer held the victim, Reprieve said so, and it went when that cleaner was done"


def _check_held(scene: Scene) -> None:
    """See the object stay for as long as the other cleaner takes."""
    deadline = time.monotonic() + CLEANER_SECONDS
    while time.monotonic() < deadline:
        found = scene.quiet.find("pod", POD, "-n", scene.namespace)
        held = found is not None and found["metadata"].get("finalizers") == [FINALIZER]
        promise.keep(claim=held, otherwise=f"{POD} went before its other cleaner was done")


_COLUMNS = victim.columns(
    NAME=".metadata.name",
    EVICTION=victim.PHASE_COLUMN,
    DELETED=".metadata.deletionTimestamp",
    EXIT=victim.EXIT_COLUMN,
    FINALIZERS=".metadata.finalizers",
)
