"""The benchmarks of the page: what each answers, how it is run, and how its result is read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import readers
from .results import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One benchmark."""

    key: str
    title: str
    question: str
    """One sentence: what its figures say."""
    repeat: Sequence[str]
    """Commands that measure it again, or with other parameters."""
    takes: str
    module: str
    output_flag: str = "-o"
    needs_cluster: bool = True
    read: Callable[[Mapping[str, Any]], Measurement]
    anchor: str
    """Of its section in hack/bench/README.md."""
    writes_into_folder: bool = False
    """It writes `figures.json` somewhere below a folder, not into a file."""

    def command(self, output: Path) -> list[str]:
        """Return the command that measures it and writes to `output`."""
        return [sys.executable, "-m", self.module, self.output_flag, str(output)]


PARTS = (
    Part(
        key="webhooks",
        title="One review",
        question="How many reviews the admission server answers on one core, beside two servers "
        "in Go that check one rule.",
        repeat=(
            "make bench-webhooks",
            "PYTHONPATH=hack .venv/bin/python -m bench.webhooks --rounds 9 --seconds 5",
        ),
        takes="two minutes",
        module="bench.webhooks",
        output_flag="--json",
        needs_cluster=False,
        read=readers.of_webhooks,
        anchor="make-bench-webhooks",
    ),
    Part(
        key="admission",
        title="The creation of a pod",
        question="What each way to enforce a policy adds to the creation of a pod on a real API "
        "server.",
        repeat=(
            "make bench-admission",
            "PYTHONPATH=hack .venv/bin/python -m bench.admission --rounds 9 --seconds 3",
        ),
        takes="five minutes",
        module="bench.admission",
        read=readers.of_admission,
        anchor="make-bench-admission",
    ),
    Part(
        key="cel",
        title="Policies inside the API server",
        question="What the overlay `cel` costs the API server for a created pod, beside policies "
        "that are written by hand.",
        repeat=("make bench-cel", "make bench-cel ARGS=--parts   # each policy alone"),
        takes="a minute",
        module="bench.cel",
        needs_cluster=False,
        read=readers.of_cel,
        anchor="make-bench-cel",
    ),
    Part(
        key="victims",
        title="A thousand victims at once",
        question="How soon victims are hinted and gone that are marked at the same moment, beside "
        "a bare program that patches and deletes as many pods.",
        repeat=(
            "make bench-victims",
            "make bench-victims VICTIMS=1000 PODS=2000 NODES=10   # some ten minutes",
        ),
        takes="40 minutes",
        module="bench.victims",
        read=readers.of_victims,
        anchor="make-bench-victims",
    ),
    Part(
        key="preemption",
        title="Jobs that preempt each other",
        question="How soon preemptors start, and how much work their victims lose, beside the "
        "stock scheduler.",
        repeat=("make bench-preemption", "make bench-preemption SEEDS=1,2,3,4"),
        takes="40 minutes",
        module="bench.preemption",
        read=readers.of_preemption,
        anchor="make-bench-preemption",
        writes_into_folder=True,
    ),
    Part(
        key="simulate",
        title="The same, simulated",
        question="What an idealised scheduler makes of the same jobs, also with designs that do "
        "not exist.",
        repeat=("make bench-simulate", "make bench-simulate TRACE=philly SEEDS=1,2,3"),
        takes="a minute",
        module="bench.preemption.simulator",
        output_flag="--json",
        needs_cluster=False,
        read=readers.of_simulation,
        anchor="make-bench-simulate",
    ),
    Part(
        key="extender",
        title="One call of a scheduler",
        question="What one call about every node of a large cluster costs, and how long reviews "
        "wait meanwhile.",
        repeat=("make bench-extender", "make bench-extender NODES=1000 PODS=30"),
        takes="some minutes",
        module="bench.extender",
        needs_cluster=False,
        read=readers.of_extender,
        anchor="make-bench-extender",
    ),
    Part(
        key="sizes",
        title="The extender by the size of the cluster",
        question="How much memory the webhooks take with 30 pods on a node, and what one call "
        "about every node costs.",
        repeat=(
            "make bench-extender SIZES=100:3000,1000:30000,5000:150000",
            "make bench-extender SIZES=200:20000",
        ),
        takes="ten minutes",
        module="bench.memory",
        needs_cluster=False,
        read=readers.of_sizes,
        anchor="make-bench-extender",
    ),
    Part(
        key="check",
        title="Ten thousand manifests",
        question="How long `reprieve check` takes for 10,000 Deployments of 1 KB on one core.",
        repeat=(
            "make bench-check",
            "PYTHONPATH=hack .venv/bin/python -m bench.checks --documents 1000",
        ),
        takes="a minute",
        module="bench.checks",
        needs_cluster=False,
        read=readers.of_check,
        anchor="make-bench-check",
    ),
)
BY_KEY = {part.key: part for part in PARTS}
