"""Where the pod templates are in other projects' kinds that make pods (`templateKinds`).

The well-known kinds are here. An admin adds others, one line for each: `GROUP/KIND: PATH, PATH`. A
path leads to a pod template by fields; `[*]` after a field stands for each item of a list or each
value of a map. Kinds that only wrap others need no entry: a TrainJob makes a JobSet, and a Kueue
Workload describes an object that is already checked. PodGroups make no pods, but state something
for those that name them: they are listed without a path.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from reprieve_policy.verdict import Violation, ViolationKind

from . import kinds
from .values import text

MAX_TEMPLATES = 256
"""Templates read of one object. The pods of any others are checked when they are created."""
_MAX_KINDS = 100
_LONGEST_LINE = 2000
_LONGEST_KEY = 63
"""Characters of a map's key that a path shows."""

_FIELD = r"[A-Za-z][A-Za-z0-9]{0,62}(?:\[\*\])?"
_PATH = rf"{_FIELD}(?:\.{_FIELD}){{0,11}}"
_LINE = re.compile(
    rf"([a-z0-9][-a-z0-9.]{{0,251}})/([A-Z][A-Za-z0-9]{{0,62}}) *: *({_PATH}(?: *, *{_PATH})*)"
)
_EXPECTED = 'must be lines like "example.com/Sweep: spec.trials[*].template"'


class TemplateKind(NamedTuple):
    """A kind, and the paths to its pod templates."""

    group: str
    kind: str
    paths: tuple[str, ...]
    """Empty for a kind of which only the object's own metadata is read."""


@dataclass(frozen=True, slots=True)
class TemplateKinds:
    """All kinds that were listed, each once."""

    rows: tuple[TemplateKind, ...]

    def paths_of(self, group: str, kind: str) -> tuple[str, ...] | None:
        """Return the paths to the pod templates of a kind; `None` for a kind that is not listed."""
        found = (row.paths for row in self.rows if (row.group, row.kind) == (group, kind))
        return next(found, None)


_REPLICAS = {
    name: f"spec.{name.lower()}ReplicaSpecs[*].template"
    for name in ("PyTorch", "TF", "MPI", "Paddle", "JAX")
}
_RAY_PODS = ("headGroupSpec.template", "workerGroupSpecs[*].template")

WELL_KNOWN = TemplateKinds(
    (
        TemplateKind(
            "jobset.x-k8s.io", "JobSet", ("spec.replicatedJobs[*].template.spec.template",)
        ),
        TemplateKind(
            "leaderworkerset.x-k8s.io",
            "LeaderWorkerSet",
            (
                "spec.leaderWorkerTemplate.leaderTemplate",
                "spec.leaderWorkerTemplate.workerTemplate",
            ),
        ),
        *(TemplateKind("kubeflow.org", f"{name}Job", (path,)) for name, path in _REPLICAS.items()),
        TemplateKind("kubeflow.org", "XGBoostJob", ("spec.xgbReplicaSpecs[*].template",)),
        TemplateKind("ray.io", "RayCluster", tuple(f"spec.{path}" for path in _RAY_PODS)),
        TemplateKind(
            "ray.io",
            "RayJob",
            (*(f"spec.rayClusterSpec.{path}" for path in _RAY_PODS), "spec.submitterPodTemplate"),
        ),
        TemplateKind(
            "ray.io", "RayService", tuple(f"spec.rayClusterConfig.{path}" for path in _RAY_PODS)
        ),
        TemplateKind("batch.volcano.sh", "Job", ("spec.tasks[*].template",)),
        # What these state for the pods that name them.
        TemplateKind("scheduling.x-k8s.io", "PodGroup", ()),
        TemplateKind("scheduling.sigs.k8s.io", "PodGroup", ()),
    )
)


def parse(listed: str, path: str) -> TemplateKinds | Violation:
    """Read an admin's lines. They add to the well-known kinds, or replace one of them."""
    rows = {(row.group, row.kind): row for row in WELL_KNOWN.rows}
    for line in filter(None, map(str.strip, listed.splitlines())):
        row = _parse_line(line, path)
        if isinstance(row, Violation):
            return row
        rows[row.group, row.kind] = row
    if len(rows) > _MAX_KINDS:
        return Violation(
            path,
            ViolationKind.INVALID,
            None,
            f"must be at most {_MAX_KINDS - len(WELL_KNOWN.rows)} kinds",
        )
    return TemplateKinds(tuple(rows.values()))


def find_templates(
    document: object, paths: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the templates in a raw object, each with its prefix (`spec.trials[0].template.`)."""
    found = (place for path in paths for place in _walk(document, path.split("."), ""))
    return islice(found, MAX_TEMPLATES)


def _parse_line(line: str, path: str) -> TemplateKind | Violation:
    match = _LINE.fullmatch(line) if len(line) <= _LONGEST_LINE else None
    if match is None:
        return Violation(path, ViolationKind.INVALID, line, _EXPECTED)
    group, kind, paths = match.groups()
    if kinds.is_served_as(kind, group):
        return Violation(
            path,
            ViolationKind.INVALID,
            line,
            f"must not be {kind} of {group}, which is read without being listed",
        )
    return TemplateKind(group, kind, tuple(found.strip() for found in paths.split(",")))


def _walk(
    value: object, steps: Sequence[str], at: str
) -> Iterator[tuple[str, Mapping[str, object]]]:
    if not isinstance(value, Mapping):
        return
    if not steps:
        yield at, value
        return
    name, _, is_each = steps[0].partition("[")
    inner, path = value.get(name), f"{at}{name}"
    items = _items(inner) if is_each else [("", inner)]
    for shown, item in items:
        yield from _walk(item, steps[1:], f"{path}{shown}.")


def _items(value: object) -> Iterator[tuple[str, object]]:
    """Yield the items of a list or map, each with the way in which a path shows it."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield f"[{text.clip(str(key), _LONGEST_KEY)}]", item
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, item in enumerate(value):
            yield f"[{index}]", item
