"""Chapter 7: the operator is killed while a victim saves. Nobody is asked twice, nobody is deleted early."""

from datetime import timedelta

from mainjob import koordinator, promise, victim, workload
from mainjob.narrator import Narrator
from mainjob.scene import Scene
from mainjob.world import World
from realcluster.programs import OPERATOR

TITLE = "The operator is killed between the hint and the acknowledgement"

POD = "saves-meanwhile"
SAVE_SECONDS = 8.0  # longer than it takes to kill the operator, to start another one, and for the lease to run out
TIMEOUT = {"reprieve.dev/checkpoint-timeout": "20s"}
ASKED = "asked for a checkpoint"


def tell(world: World, narrator: Narrator) -> str:
    """Kill the operator while a victim saves, start another one, and count."""
    scene = Scene(world, narrator, "demo-crash")
    scene.make_namespace()
    narrator.say(f"A pod that needs {SAVE_SECONDS:.0f} s to save is marked.")
    pod = workload.build_pod(scene, POD, save_seconds=SAVE_SECONDS, annotations=TIMEOUT)
    workload.start_pods(scene, pod)
    with workload.following(scene, POD) as log, victim.recording(scene, POD) as record:
        koordinator.mark(scene, POD)
        before = victim.wait_for_phase(scene, POD, "hinted", "checkpointing")
        scene.wait("hint in the workload's log", lambda: ASKED in log.text)
        _kill(scene)
        promise.keep(
            claim="saved step" not in log.text,
            otherwise="the workload had saved before the operator was killed",
        )
        world.start(OPERATOR)
        narrator.say(
            f"Another operator is started (pid {world.programs.pid(OPERATOR)}). When the lease of the first has run out, it "
            "reads on the pod where the victim was, and asks the workload how far it is."
        )
        victim.wait_until_gone(scene, POD)
        after = victim.last_state(scene, record)
    scene.show_watched(log)
    told = victim.show_events(scene, POD, "SoftEvictionCompleted")
    promise.same("hints in the workload's own log", log.text.count(ASKED), 1)
    promise.same("the number of the hint", (before.attempt, after.attempt), (1, 1))
    promise.same("the time of the hint", after.hinted_at, before.hinted_at)
    promise.same("the id of the eviction", after.eviction_id, before.eviction_id)
    promise.same("hints told in Events", told.count("CheckpointRequested"), 1)
    assert after.checkpoint is not None
    deleted = victim.deleted_at(scene, POD)
    early = deleted - after.checkpoint.saved_at
    promise.keep(claim=early > timedelta(0), otherwise=f"{POD} was deleted before it had saved")
    narrator.say(
        f"Acknowledged at {after.checkpoint.saved_at:%H:%M:%S.%f}, deleted at {deleted:%H:%M:%S.%f}, by the audit log of "
        "the API server: one DELETE, after the acknowledgement."
    )
    return "an operator killed in the middle went on where it was: hinted once, deleted once, after the acknowledgement"


def _kill(scene: Scene) -> None:
    pid = scene.world.programs.pid(OPERATOR)
    scene.world.programs.stop(OPERATOR, kill=True)
    scene.narrator.show(f"kill -KILL {pid}    # {OPERATOR}", "")
