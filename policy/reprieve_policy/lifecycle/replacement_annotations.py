"""What a replacement gets: annotations, and on request the same values as environment variables.

A variable refers to the annotation (the downward API) and is never a copy. A copy would be expanded
if a path contains `$(NAME)`, would be in the spec of a bare pod that is stored for its next
replacement, and could differ from the annotation.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from reprieve_policy import keys
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.config.annotation_values import WholeNumber
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.objects import PodView
from reprieve_policy.kube.values import duration, text, timestamp
from reprieve_policy.verdict import ListAddition, MetadataChange

from . import ledger
from .eviction import Checkpoint

ENVIRONMENT: Mapping[str, str] = {
    keys.PREEMPTED_COUNT: "REPRIEVE_PREEMPTED_COUNT",
    keys.FIRST_SUBMITTED_AT: "REPRIEVE_FIRST_SUBMITTED_AT",
    keys.RESUME_FROM_CHECKPOINT: "REPRIEVE_RESUME_FROM_CHECKPOINT",
    keys.LAST_CHECKPOINT_AT: "REPRIEVE_LAST_CHECKPOINT_AT",
    keys.LAST_CHECKPOINT_TOOK: "REPRIEVE_LAST_CHECKPOINT_TOOK",
}
"""For each annotation, the variable with the same value."""


_UNNAMED = "true"
_COUNT = WholeNumber(1, 2**31 - 1)
_MAX_SAVE_SECONDS = 2**31 - 1


class EnvironmentVariable(NamedTuple):
    """An environment variable with the value of one of the pod's annotations."""

    name: str
    annotation: str

    def to_env_entry(self) -> Mapping[str, object]:
        """Return the entry of a container's `env`."""
        return {
            "name": self.name,
            "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{self.annotation}']"}},
        }


def build_annotations(entry: ledger.LedgerEntry) -> Mapping[str, str]:
    """Return the annotations of the replacement."""
    stamps = {
        keys.PREEMPTED_COUNT: str(entry.preempted_count),
        keys.FIRST_SUBMITTED_AT: timestamp.render(entry.first_submitted_at),
    }
    if entry.checkpoint is not None:
        stamps[keys.RESUME_FROM_CHECKPOINT] = entry.checkpoint.path or _UNNAMED
        stamps[keys.LAST_CHECKPOINT_AT] = timestamp.render(entry.checkpoint.saved_at)
    if entry.save_seconds is not None:
        stamps[keys.LAST_CHECKPOINT_TOOK] = duration.render(entry.save_seconds)
    return stamps


def read(annotations: Mapping[str, str]) -> ledger.LedgerEntry | None:
    """Return the history that a replacement carries, `None` if the pod is not a replacement.

    The author of a pod may write it too, so it can only lower the loss that is expected of the pod.
    """
    count, first = (
        _COUNT.parse(annotations.get(keys.PREEMPTED_COUNT, ""), ""),
        annotations.get(keys.FIRST_SUBMITTED_AT),
    )
    submitted_at = timestamp.parse(first)
    if not isinstance(count, int) or submitted_at is None:
        return None
    saved_at, path = (
        timestamp.parse(annotations.get(keys.LAST_CHECKPOINT_AT)),
        annotations.get(keys.RESUME_FROM_CHECKPOINT),
    )
    named = path if path is not None and path != _UNNAMED and text.is_clean(path) else None
    saved = None if saved_at is None or path is None else Checkpoint(saved_at=saved_at, path=named)
    took = duration.parse(annotations.get(keys.LAST_CHECKPOINT_TOOK, ""))
    return ledger.LedgerEntry(
        preempted_count=count,
        first_submitted_at=submitted_at,
        eviction_ids=(),
        checkpoint=saved,
        save_seconds=took if took and took <= _MAX_SAVE_SECONDS else None,
    )


def build_variables(
    entry: ledger.LedgerEntry, annotations: Mapping[str, str], settings: PolicySettings
) -> tuple[EnvironmentVariable, ...]:
    """Return the variables of the replacement: none unless its `annotations` ask for them.

    No variable is without a value.
    """
    if not checkpoint_plan.read_leniently(annotations, settings).sets_environment:
        return ()
    return tuple(EnvironmentVariable(ENVIRONMENT[key], key) for key in build_annotations(entry))


def decide_changes(
    entry: ledger.LedgerEntry, view: PodView, settings: PolicySettings
) -> Iterator[MetadataChange | ListAddition]:
    """Yield the changes that give a new pod the history in `entry`."""
    for key, value in build_annotations(entry).items():
        yield MetadataChange("annotations", key, value)
    variables = build_variables(entry, view.annotations, settings)
    for field in ("initContainers", "containers"):
        for index, container in enumerate(getattr(view.spec, field) or ()):
            known = {variable.name for variable in container.env or ()}
            path, is_there = f"/spec/{field}/{index}/env", container.env is not None
            yield from (
                ListAddition(path, variable.to_env_entry(), is_there)
                for variable in variables
                if variable.name not in known
            )
