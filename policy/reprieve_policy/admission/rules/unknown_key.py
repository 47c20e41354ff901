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
from functools import cached_property
from itertools import islice
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
"""Keys that are explained of one object, with all its templates: each may take a millisecond, in
which no other review is answered."""


class _Holder(NamedTuple):
    """Where labels and annotations stand: the object, a template, or the Jobs of a CronJob."""

    prefix: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    place: Place
    is_template: bool


class _TemplateKeys:
    """The keys of all templates of an object: tools often copy labels to the object itself."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource

    @cached_property
    def keys(self) -> frozenset[str]:
        """Read once: an object may have 256 templates, and thousands of keys to look for."""
        views = pod_views(self._resource)
        return frozenset(key for view in views for key in (*view.labels, *view.annotations))


class _KeyFinding(NamedTuple):
    path: str
    key: str
    detail: str


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check the keys of the object, and of the templates from which it makes pods."""
    templates = _TemplateKeys(resource)
    unread = (entry for holder in _holders(resource) for entry in _unread(holder, templates))
    explained = (
        _KeyFinding(path, key[:LONGEST_KEY], _explain(key, place))
        for path, key, place in islice(unread, _MOST)
    )
    found = [finding for finding in explained if finding.detail]
    if not found:
        return NO_FINDINGS
    if facts.settings.unknown_keys == REFUSE:
        return Verdict(violations=tuple(map(_refuse, found)))
    return Verdict(warnings=tuple(map(_warn, found)))


def _holders(resource: Resource) -> Iterator[_Holder]:
    if resource.kind != "Pod":
        job = None if resource.spec is None else resource.spec.jobTemplate
        place = OF_KIND.get(resource.kind, OWNERS)
        for prefix, metadata in (
            ("", resource.metadata),
            ("spec.jobTemplate.", None if job is None else job.metadata),
        ):
            labels, annotations = labels_of(metadata), annotations_of(metadata)
            yield _Holder(prefix, labels, annotations, place, is_template=False)
    for view in pod_views(resource):
        yield _Holder(view.prefix, view.labels, view.annotations, PODS, is_template=True)


def _unread(holder: _Holder, templates: _TemplateKeys) -> Iterator[tuple[str, str, Place]]:
    """Yield the path, the key and the place of each key that may be a mistake."""
    for entries, known, path_of in (
        (holder.labels, holder.place.labels, label_path),
        (holder.annotations, holder.place.annotations, annotation_path),
    ):
        unread = [key for key in entries if key not in known and misspelled_keys.is_suspicious(key)]
        for key in sorted(unread):
            if holder.is_template or key not in templates.keys:
                yield path_of(holder.prefix, key[:LONGEST_KEY]), key, holder.place


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
