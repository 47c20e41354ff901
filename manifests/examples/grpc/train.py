r"""A training loop that may be preempted and is asked over gRPC: the contract "checkpoint now".

Its image (job.yaml) needs grpcio and, on PYTHONPATH, the stubs. gRPC's own compiler makes them from
the published file, for any language:

    python -m grpc_tools.protoc -I proto --python_out=. --grpc_python_out=. \
        reprieve/checkpoint/v1/checkpoint.proto
"""

import json
import os
import pathlib
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc import ServicerContext
from reprieve.checkpoint.v1 import checkpoint_pb2, checkpoint_pb2_grpc
from reprieve.checkpoint.v1.checkpoint_pb2 import Answer

CHECKPOINT = pathlib.Path(
    os.environ.get("CHECKPOINTS", "/checkpoints"), os.environ.get("POD_NAME", "training") + ".json"
)
RESUME = os.environ.get("RESUME_FROM_CHECKPOINT", "")
PLACE = f"{os.environ.get('POD_IP', '0.0.0.0')}:{os.environ.get('PORT', '9000')}"  # noqa: S104 - called by the pod's address
STEPS = int(os.environ.get("STEPS", "600"))


class TrainingCheckpoint(checkpoint_pb2_grpc.CheckpointServicer):
    """Answers at once; the loop saves, between two steps."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_wanted = False
        self.answer = Answer(state=Answer.STATE_IDLE)

    def Ask(self, request: checkpoint_pb2.Request, context: ServicerContext) -> Answer:  # noqa: ARG002, N802 - gRPC's form
        """Accept a request. The same id again is the same request: it is saved once."""
        with self.lock:
            if request.id != self.answer.id:
                print(f"asked to save by {request.deadline.ToJsonString()}", flush=True)
                self.is_wanted = True
                self.answer = Answer(state=Answer.STATE_SAVING, id=request.id)
            return self.answer

    def Look(self, request: checkpoint_pb2.LookRequest, context: ServicerContext) -> Answer:  # noqa: ARG002, N802
        """Return the progress, without any effect."""
        with self.lock:
            return self.answer if request.id == self.answer.id else Answer(state=Answer.STATE_IDLE)

    def Cancel(self, request: checkpoint_pb2.CancelRequest, context: ServicerContext) -> Answer:  # noqa: ARG002, N802
        """Forget the request: the pod stays, and the loop has never stopped."""
        with self.lock:
            if request.id == self.answer.id:
                print("cancelled", flush=True)
                self.is_wanted = False
                self.answer = Answer(state=Answer.STATE_IDLE)
        return Answer(state=Answer.STATE_IDLE)

    def save_if_wanted(self, step: int) -> None:
        """Save whole or not at all: a file that is renamed is never half a checkpoint."""
        with self.lock:
            wanted, self.is_wanted, eviction_id = self.is_wanted, False, self.answer.id
        if not wanted:
            return
        new = CHECKPOINT.with_suffix(".new")
        new.write_text(json.dumps({"step": step}))
        new.rename(CHECKPOINT)
        with self.lock:
            # Another eviction may have begun meanwhile: this save does not answer that one.
            if self.answer.id == eviction_id:
                self.answer = Answer(
                    state=Answer.STATE_SAVED, id=eviction_id, step=step, path=str(CHECKPOINT)
                )
        print(f"saved step {step}", flush=True)


def resume() -> int:
    """Return the first step: that of the previous pod's checkpoint, or 0 without one."""
    if not RESUME:
        return 0
    step = int(json.loads(pathlib.Path(RESUME).read_text())["step"])
    print(f"resuming from step {step}, saved in {RESUME}", flush=True)
    return step


def main() -> None:
    """Train, save when asked, and go on until SIGTERM."""
    # 128 + SIGTERM: to a Job, 0 would mean that no work is left. Without a handler, PID 1 would not
    # end at all.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    checkpoint = TrainingCheckpoint()
    server = grpc.server(ThreadPoolExecutor(2))
    checkpoint_pb2_grpc.add_CheckpointServicer_to_server(checkpoint, server)
    server.add_insecure_port(PLACE)
    server.start()
    step = resume()
    print(f"training from step {step} to {STEPS}", flush=True)
    while step < STEPS:
        time.sleep(0.1)  # stands for the work
        step += 1
        checkpoint.save_if_wanted(step)
    print("finished", flush=True)


if __name__ == "__main__":
    main()
