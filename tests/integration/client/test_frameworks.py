"""The adapters of the client library, each with its real framework, as processes of their own.

The frameworks are large and nobody's dependency: `make test-frameworks` installs them. Elsewhere,
these tests are skipped. `test_agreement.py` shows the agreement without a framework.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reprieve_testing import manifests

PYTHON = os.environ.get("REPRIEVE_FRAMEWORKS_PYTHON", sys.executable)
SECONDS = 300.0
"""Importing a framework takes a minute on a busy machine."""
UNFINISHED = 143

pytestmark = pytest.mark.slow


def require(*modules: str) -> None:
    """Skip the test where the interpreter lacks a framework."""
    check = (
        "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))"
    )
    if subprocess.run([PYTHON, "-c", check, *modules], check=False).returncode:
        pytest.skip(f"needs {', '.join(modules)}: run make test-frameworks")


class Program:
    """A program with the hint `file:`, whose agent is the test."""

    def __init__(self, folder: Path, text: str, *launcher: str) -> None:
        self.folder, self._request = folder, folder / "request"
        file = folder / "program.py"
        file.write_text(text)
        environment = {
            **os.environ,
            "PYTHONPATH": str(manifests.ROOT / "client"),
            "REPRIEVE_CHECKPOINT_HINT": self._request.as_uri(),
            "FOLDER": str(folder),
            "CUDA_VISIBLE_DEVICES": "",
            "JAX_PLATFORMS": "cpu",
            "OMP_NUM_THREADS": "1",
        }
        self.log = folder / "log"
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [PYTHON, *launcher, str(file)],
                env=environment,
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def ask(self, eviction_id: str) -> dict[str, Any]:
        """Ask for a save; return the answer once it is saved."""
        new = self._request.with_suffix(".new")
        new.write_text(json.dumps({"version": 1, "id": eviction_id, "attempt": 1}))
        new.rename(self._request)
        self.wait_for(lambda: self.answer().get("id") == eviction_id)
        self.wait_for(lambda: self.answer()["state"] == "saved")
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Return what the program has answered last."""
        file = self._request.with_name("request.answer")
        return dict(json.loads(file.read_text())) if file.exists() else {}

    def lines(self, start: str) -> list[str]:
        """Return the lines of the program's output that begin so."""
        return [line for line in self.log.read_text().splitlines() if line.startswith(start)]

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait for a condition while the program runs."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def end(self, number: signal.Signals) -> int:
        """Send the program a signal; return its exit status."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


@contextmanager
def running(folder: Path, text: str, *launcher: str) -> Iterator[Program]:
    program = Program(folder, text, *launcher)
    try:
        yield program
    finally:
        if program.process.poll() is None:
            os.killpg(program.process.pid, signal.SIGKILL)
            program.process.wait()


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
DATA_PARALLEL = """
import os, time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import reprieve_client as reprieve
from reprieve_client.frameworks.pytorch import all_ranks

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
folder = reprieve.CheckpointFolder(os.environ["FOLDER"] + "/run")

def save(step):
    print(f"\\nsaving {step} {rank}", flush=True)
    if rank == 0:
        return folder.write(step, lambda path: torch.save(model.state_dict(), path / "state.pt"))

def resume(path):
    model.load_state_dict(torch.load(path / "state.pt"))

with reprieve.checkpointing(save, resume, folder=folder, agreement=all_ranks()) as session:
    print(f"\\nfrom {session.first_step} {rank}", flush=True)
    for step in session.steps(10**9):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        time.sleep(0.01)
"""


def test_both_ranks_of_torchrun_save_the_step_at_which_the_next_torchrun_goes_on(
    tmp_path: Path,
) -> None:
    require("torch")
    with running(tmp_path, DATA_PARALLEL, *TORCHRUN) as program:
        program.wait_for(lambda: len(program.lines("from 0 ")) == 2)
        first = program.ask("uid-1")
        assert sorted(program.lines("saving")) == [f"saving {first['step']} {r}" for r in (0, 1)]
        assert first["path"] == str(tmp_path / "run" / f"step-{first['step']}")
        os.killpg(program.process.pid, signal.SIGKILL)
    with running(tmp_path, DATA_PARALLEL, *TORCHRUN) as program:
        program.wait_for(lambda: len(program.lines(f"from {first['step']} ")) == 2)
        second = program.ask("uid-2")
        assert second["step"] > first["step"]


HUGGING_FACE = """
import os, time, torch
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments
from reprieve_client.frameworks.huggingface import ReprieveCallback

class Model(PreTrainedModel):
    config_class = PretrainedConfig
    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(4, 1)
        self.post_init()
    def forward(self, x):
        time.sleep(0.02)
        return {"loss": self.layer(x).square().mean()}

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 100000
    def __getitem__(self, index):
        return {"x": torch.full((4,), index / 100000)}

callback = ReprieveCallback()
arguments = TrainingArguments(
    os.environ["FOLDER"] + "/out", max_steps=100000, save_strategy="no", report_to=[],
    use_cpu=True, disable_tqdm=True, per_device_train_batch_size=1, logging_strategy="no",
)
trainer = Trainer(Model(PretrainedConfig()), arguments, train_dataset=Data(), callbacks=[callback])
path = callback.resume_from(arguments.output_dir)
print(f"\\nfrom {path}", flush=True)
trainer.train(resume_from_checkpoint=path)
"""

LIGHTNING = """
import os, time, torch
from reprieve_client.frameworks.lightning import Callback, ReprieveCallback
try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        time.sleep(0.02)
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

callback = ReprieveCallback(os.environ["FOLDER"] + "/out")
trainer = pl.Trainer(
    callbacks=[callback], max_steps=100000, accelerator="cpu", logger=False,
    enable_checkpointing=False, enable_progress_bar=False,
)
path = callback.resume_from()
print(f"\\nfrom {path}", flush=True)
data = torch.utils.data.DataLoader(torch.randn(100000, 4), batch_size=1)
trainer.fit(Model(), data, ckpt_path=path)
"""

ORBAX = """
import os, time
import jax.numpy as jnp
import orbax.checkpoint as ocp
import reprieve_client as reprieve
from reprieve_client.frameworks.jax import all_processes
from reprieve_client.frameworks.orbax import PreemptibleCheckpointManager

state = {"weights": jnp.arange(4.0)}
with reprieve.checkpointing(agreement=all_processes()) as session:
    options = ocp.CheckpointManagerOptions(save_interval_steps=10**9)
    manager = PreemptibleCheckpointManager(
        session, os.environ["FOLDER"] + "/out", options=options
    )
    path = manager.latest_step() and f"{manager.directory}/{manager.latest_step()}"
    if path:
        state = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(state))
    print(f"\\nfrom {path}", flush=True)
    for step in range((manager.latest_step() or 0) + 1, 10**9):
        time.sleep(0.02)
        state = {"weights": state["weights"] + 1}
        manager.save(step, args=ocp.args.StandardSave(state))
"""


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        pytest.param(HUGGING_FACE, ("torch", "transformers", "accelerate"), id="huggingface"),
        pytest.param(LIGHTNING, ("torch", "pytorch_lightning"), id="lightning"),
        pytest.param(ORBAX, ("jax", "orbax"), id="orbax"),
    ],
)
def test_a_framework_saves_when_asked_goes_on_and_is_resumed(
    tmp_path: Path, text: str, modules: tuple[str, ...]
) -> None:
    require(*modules)
    with running(tmp_path, text) as program:
        program.wait_for(lambda: program.lines("from None"))
        first = program.ask("uid-1")
        assert Path(first["path"]).exists()
        second = program.ask("uid-2")
        assert second["step"] > first["step"]
        os.killpg(program.process.pid, signal.SIGKILL)
    with running(tmp_path, text) as program:
        program.wait_for(lambda: program.lines(f"from {second['path']}"))
        third = program.ask("uid-3")
        assert third["step"] > second["step"]
        assert program.end(signal.SIGTERM) == UNFINISHED


RAY = """
import types
import ray.train
from ray.train import PreemptionInfo
import reprieve_client as reprieve
from reprieve_client.agreement import Alone
from reprieve_client.frameworks.ray import WithRay

# A drain of a real node needs a cluster; what Ray tells a worker is this object.
told = [None, None, ["a"], ["a"], ["a", "b"], ["a", "b"]]
infos = iter(told)
def info():
    nodes = next(infos)
    return nodes and PreemptionInfo(
        deadline_ms=None, preempted_node_to_ranks={node: [0] for node in nodes}
    )
ray.train.get_preemption_info = info

saves = []
with reprieve.checkpointing(saves.append, agreement=WithRay(Alone())) as session:
    for _ in session.steps(len(told)):
        pass
assert saves == [3, 5], saves
"""


def test_with_ray_each_node_that_goes_is_one_save(tmp_path: Path) -> None:
    require("ray")
    with running(tmp_path, RAY) as program:
        assert program.process.wait(SECONDS) == 0, program.log.read_text()
