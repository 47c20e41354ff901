"""The adapters of the client library, each with its real framework, as processes of their own.

The frameworks are large and no dependency of ours: `make test-frameworks` installs them. Elsewhere,
these tests are skipped. `test_agreement.py` shows the agreement without a framework.
"""

import os
import random
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from reprieve_testing import page_blocks
from reprieve_testing.servers.hinted_program import HintedProgram, running

PYTHON = os.environ.get("REPRIEVE_FRAMEWORKS_PYTHON", sys.executable)
SECONDS = 300.0
"""Importing a framework takes a minute on a busy machine."""
KILLS = 4
UNFINISHED = 143

pytestmark = pytest.mark.slow


def require(*modules: str) -> None:
    """Skip the test where the interpreter lacks a framework."""
    check = (
        "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))"
    )
    if subprocess.run([PYTHON, "-c", check, *modules], check=False).returncode:
        pytest.skip(f"needs {', '.join(modules)}: run make test-frameworks")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for a program, and tell the frameworks to use no more than a processor."""
    for name, value in {
        "FOLDER": str(tmp_path),
        "CUDA_VISIBLE_DEVICES": "",
        "JAX_PLATFORMS": "cpu",
        "OMP_NUM_THREADS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def program(folder: Path, text: str, *launcher: str) -> AbstractContextManager[HintedProgram]:
    file = folder / "program.py"
    file.write_text(text)
    return running(folder, PYTHON, *launcher, file, seconds=SECONDS)


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

every_seconds = float(os.environ.get("EVERY_SECONDS", "inf"))
with reprieve.checkpointing(
    save, resume, folder=folder, agreement=all_ranks(), every_seconds=every_seconds
) as session:
    print(f"\\nfrom {session.first_step} {rank}", flush=True)
    for step in session.steps(10**9):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        time.sleep(0.01)
"""


def test_both_ranks_of_torchrun_save_the_step_at_which_the_next_torchrun_goes_on(
    folder: Path,
) -> None:
    require("torch")
    with program(folder, DATA_PARALLEL, *TORCHRUN) as one:
        one.wait_for(lambda: len(one.lines("from 0 ")) == 2)
        first = one.ask("uid-1")
        assert sorted(one.lines("saving")) == [f"saving {first['step']} {r}" for r in (0, 1)]
        assert first["path"] == str(folder / "run" / f"step-{first['step']}")
        one.kill()
    with program(folder, DATA_PARALLEL, *TORCHRUN) as two:
        two.wait_for(lambda: len(two.lines(f"from {first['step']} ")) == 2)
        second = two.ask("uid-2")
        assert second["step"] > first["step"]


def test_torchrun_that_is_killed_at_random_loses_nothing_that_it_answered_as_saved(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("torch")
    monkeypatch.setenv("EVERY_SECONDS", "0.2")
    moments, contents, acknowledged = random.Random(7), dict[str, bytes](), 0
    for number in range(1, KILLS + 1):
        with program(folder, DATA_PARALLEL, *TORCHRUN) as one:
            one.wait_for(lambda n=number, one=one: len(one.lines("from")) == 2 * n)  # type: ignore[misc]
            (first,) = {int(line.split()[1]) for line in one.lines("from")[-2:]}
            assert first >= acknowledged
            one.write_request(f"uid-{number}")
            time.sleep(moments.uniform(0, 1.5))
            one.kill()
            answer = one.answer()
        for path in (folder / "run").glob("step-*"):
            # The steps are random: two checkpoints of one step would differ.
            content = (path / "state.pt").read_bytes()
            assert contents.setdefault(path.name, content) == content
        acknowledged = answer["step"] if answer.get("state") == "saved" else acknowledged
    assert acknowledged > 0


@pytest.mark.parametrize(
    ("part", "launcher", "modules"),
    [
        pytest.param("DistributedDataParallel", TORCHRUN, ("torch",), id="pytorch"),
        pytest.param("PreemptibleCheckpointManager", (), ("jax", "orbax"), id="jax"),
    ],
)
def test_what_the_page_for_authors_shows_saves_and_is_resumed(
    folder: Path, part: str, launcher: tuple[str, ...], modules: tuple[str, ...]
) -> None:
    require(*modules)
    (shown,) = [text for text in page_blocks.blocks("docs/authors.md", "python") if part in text]
    text = shown.replace("/checkpoints/run-1", f"{folder}/run-1").replace("100000", "10**9")
    with program(folder, text, *launcher) as one:
        first = one.ask("uid-1")
        assert Path(first["path"]).is_dir()
        one.kill()
    with program(folder, text, *launcher) as two:
        second = two.ask("uid-2")
        assert second["step"] > first["step"]


TWO_OF_JAX = """
import os, socket, subprocess, sys, time

if "LOCAL_RANK" not in os.environ:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = {**os.environ, "COORDINATOR": f"127.0.0.1:{probe.getsockname()[1]}"}
    ranks = [
        subprocess.Popen([sys.executable, __file__], env={**place, "LOCAL_RANK": str(rank)})
        for rank in (0, 1)
    ]
    sys.exit(max(rank.wait() for rank in ranks))

import jax
rank = int(os.environ["LOCAL_RANK"])
jax.distributed.initialize(os.environ["COORDINATOR"], num_processes=2, process_id=rank)
import reprieve_client as reprieve
from reprieve_client.frameworks.jax import all_processes

def save(step):
    print(f"\\nsaving {step} {rank}", flush=True)
    return f"/checkpoints/{step}" if rank == 1 else None

with reprieve.checkpointing(save, agreement=all_processes(every=2)) as session:
    for _ in session.steps(10**9):
        time.sleep(0.01)
"""


def test_both_processes_of_jax_save_after_the_same_step(folder: Path) -> None:
    require("jax")
    with program(folder, TWO_OF_JAX) as one:
        saved = one.ask("uid-1")
        step = saved["step"]
        assert (step % 2, saved["path"]) == (0, f"/checkpoints/{step}")
        assert sorted(one.lines("saving")) == [f"saving {step} {rank}" for rank in (0, 1)]


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
    folder: Path, text: str, modules: tuple[str, ...]
) -> None:
    require(*modules)
    with program(folder, text) as one:
        one.wait_for(lambda: one.lines("from None"))
        first = one.ask("uid-1")
        assert Path(first["path"]).exists()
        second = one.ask("uid-2")
        assert second["step"] > first["step"]
        one.kill()
    with program(folder, text) as two:
        two.wait_for(lambda: two.lines(f"from {second['path']}"))
        third = two.ask("uid-3")
        assert third["step"] > second["step"]
        assert two.end() == UNFINISHED


WAITS_BETWEEN_TWO_STEPS = """
        if index == 60:
            print("\\nwaiting", flush=True)
        while index == 60 and not self.trainer.received_sigterm:
            time.sleep(0.02)
"""
WAITS_IN_VALIDATION = """
    def val_dataloader(self):
        return torch.utils.data.DataLoader(torch.randn(5, 4), batch_size=1)
    def validation_step(self, batch, index):
        if self.trainer.sanity_checking or self.trainer.global_step != 1:
            return
        if index == 2:
            print("\\nwaiting", flush=True)
        while index == 2 and not self.trainer.received_sigterm:
            time.sleep(0.02)
    def training_step(self, batch, index):
"""


@pytest.mark.parametrize(
    ("line", "waiting"),
    [
        pytest.param("        time.sleep(0.02)\n", WAITS_BETWEEN_TWO_STEPS, id="between-steps"),
        pytest.param(
            "    def training_step(self, batch, index):\n", WAITS_IN_VALIDATION, id="validation"
        ),
    ],
)
def test_lightning_saves_on_sigterm_between_two_optimizer_steps(
    folder: Path, line: str, waiting: str
) -> None:
    require("torch", "pytorch_lightning")
    text = LIGHTNING.replace(
        "max_steps=100000,",
        "max_steps=100000, accumulate_grad_batches=50, val_check_interval=60,",
    )
    with program(folder, text.replace(line, waiting.removeprefix("\n"))) as one:
        one.wait_for(lambda: one.lines("waiting"))
        assert one.end() == UNFINISHED
    assert [path.name for path in (folder / "out").iterdir()] == ["step-1.ckpt"]
    with program(folder, text) as two:
        two.wait_for(lambda: two.lines(f"from {folder}/out/step-1.ckpt"))
        assert two.ask("uid-1")["step"] > 1


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


def test_with_ray_each_node_that_goes_is_one_save(folder: Path) -> None:
    require("ray", "pandas", "pyarrow")  # what the extra ray[train] brings
    with program(folder, RAY) as one:
        assert one.wait() == 0, one.log
