"""A key with our prefix is one that Reprieve reads where it stands, and keys are spelled right.

Warned of: a label or annotation `reprieve.dev/…` that Reprieve does not know, or does not read
there: a class as an annotation, a checkpoint key as a label, a key of pods in the metadata of a
Deployment whose template lacks it, a key of Namespaces on a pod. Also a key that differs by one or
two letters from a key of another project that Reprieve reads and users type, such as
`toleration-second` or `minimum-preemptible-priority`, and a key of ours whose prefix does. Other
keys of other projects are never warned of.

The API server asks the webhooks about every object with a key of ours. Of pods and templates whose
only such key is one of another project, it asks about those of Koordinator's quotas and gangs and
of Kubernetes' pod groups; `reprieve check` and `reprieve audit --strict` find the others, too.
Nodes are not reviewed.

Why: a misspelled key has no effect, and its author relies on what it was meant to say.

Source: the keys are those of [keys](../keys.md); upstream's plugins ignore unknown annotations,
too.

Setting: `unknownKeys`: `warn`, or `refuse`. `reprieve check --strict` fails on the warning.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from reprieve_policy.admission import misspelled_keys
from reprieve_policy.admission.key_places import OF_KIND, OWNERS, PODS, Place, describe
from reprieve_policy.admission.misspelled_keys import LONGEST_KEY
from reprieve_policy.config.settings import REFUSE
from reprieve_policy.facts import Facts
from reprieve_policy.keys import PREFIX
from reprieve_policy.kube.objects import Resource, annotations_of, labels_of, pod_views
from reprieve_policy.verdict import (
    NO_FINDINGS,
    Verdict,
    Violation,
    ViolationKind,
    annotation_path,
    label_path,
)

_LONGEST = 119
"""Letters of a warning. A longer one shows the name of its key only."""
_MOST = 20
"""Keys that are explained of one map. Without this, an object with thousands of misspelled keys
would take a second."""


class _KeyFinding(NamedTuple):
    path: str
    key: str
    detail: str


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check the keys of the object, and of the templates from which it makes pods."""
    found = [] if resource.kind == "Pod" else [*_check_own(resource)]
    for view in pod_views(resource):
        found += _check(view.prefix, view.labels, view.annotations, PODS)
    if not found:
        return NO_FINDINGS
    if facts.settings.unknown_keys == REFUSE:
        return Verdict(violations=tuple(map(_refuse, found)))
    return Verdict(warnings=tuple(map(_warn, found)))


def _check_own(resource: Resource) -> Iterator[_KeyFinding]:
    """Yield the mistakes in the object's own metadata, and in that of the Jobs of a CronJob."""
    job = None if resource.spec is None else resource.spec.jobTemplate
    holders = (
        ("", resource.metadata),
        ("spec.jobTemplate.", None if job is None else job.metadata),
    )
    place = OF_KIND.get(resource.kind, OWNERS)
    for prefix, metadata in holders:
        for finding in _check(prefix, labels_of(metadata), annotations_of(metadata), place):
            if not _is_in_template(finding.key, resource):
                yield finding


def _is_in_template(key: str, resource: Resource) -> bool:
    """True if a template has the key as well: tools often copy labels to the object itself."""
    return any(key in view.labels or key in view.annotations for view in pod_views(resource))


def _check(
    prefix: str, labels: Mapping[str, str], annotations: Mapping[str, str], place: Place
) -> list[_KeyFinding]:
    found: list[_KeyFinding] = []
    for entries, known, path_of in (
        (labels, place.labels, label_path),
        (annotations, place.annotations, annotation_path),
    ):
        unread = [key for key in entries if key not in known and misspelled_keys.is_suspicious(key)]
        explained = ((key, _explain(key, place)) for key in sorted(unread)[:_MOST])
        shown = ((key[:LONGEST_KEY], detail) for key, detail in explained if detail)
        found.extend(_KeyFinding(path_of(prefix, key), key, detail) for key, detail in shown)
    return found


def _explain(key: str, place: Place) -> str:
    """Return what is wrong with a key and what would be right; empty if nothing is wrong."""
    if not key.startswith(PREFIX):
        meant = misspelled_keys.resembled(key)
        return f"unknown; did you mean {_shown(meant, key)}?" if meant else ""
    if where := describe(key, place):
        return f"unread here; it is {where}"
    meant = misspelled_keys.most_similar(key, PODS if place is OWNERS else place)
    return (
        f"unknown; did you mean {_shown(meant, key)}?"
        if meant
        else "unknown; Reprieve has no such key"
    )


def _shown(meant: str, key: str) -> str:
    """Return the key that was meant; under the same prefix only its name: warnings are short."""
    prefix, _, name = meant.rpartition("/")
    return f'"{name if key.startswith(f"{prefix}/") else meant}"'


def _warn(finding: _KeyFinding) -> str:
    text = f"{finding.path}: {finding.detail}"
    if len(text) <= _LONGEST:
        return text
    prefix, _, name = finding.key.rpartition("/")
    return text.replace(f"[{prefix}/{name}]", f"[*/{name}]")


def _refuse(finding: _KeyFinding) -> Violation:
    return Violation(finding.path, ViolationKind.UNSUPPORTED, finding.key, finding.detail)
