"""Which anti-affinities of a node's pods match a preemptor.

They are kept with the node, by the labels that they ask for or exclude. Without this, each decision
would look at each term of each pod, and one tenant's pods with many terms would delay the
preemptors of all.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from .snapshot import (
    TOO_LARGE,
    AntiAffinity,
    AntiAffinityIndex,
    LabelKey,
    PostedTerm,
    Preemptor,
    Repelling,
    Requirement,
    ScheduledPod,
)

_POD, _NAMESPACE = "pod", "namespace"
_NAME = ""
"""Stands for a Namespace's name among its labels: no label has an empty key."""
_TAKES_BACK_NODES: LabelKey = ("preemptor", "", None)
_ABOUT_VALUES = frozenset({"In", "NotIn"})
_ABOUT_KEY = frozenset({"Exists", "DoesNotExist"})
_EXCLUDES = frozenset({"NotIn", "DoesNotExist"})


def index_of(
    pods: Sequence[ScheduledPod], node_labels: Mapping[str, str]
) -> AntiAffinityIndex | None:
    """Return the anti-affinities of a node's pods, `None` if they have none."""
    index = AntiAffinityIndex([], [], [], {})
    for place, pod in enumerate(pods):
        if pod.anti_affinity:
            _add(index, place, _posted(pod), node_labels)
    return index if index.owners else None


def matching(index: AntiAffinityIndex, labels: AbstractSet[LabelKey]) -> set[Repelling]:
    """Return the pods that keep a preemptor with these `labels_of` away, and from where.

    One whose terms are too large counts only for a preemptor that takes back nodes. A scheduler
    that finds that another does not fit proposes its own victims; without this, a user with such a
    pod would end all choice on its node. Without the other, a node of which a pod does keep the
    preemptor away would count as one with room, and no pod would leave the other lent nodes.
    """
    hits: Counter[int] = Counter()
    for label in _in_both(labels, index.postings.keys()):
        hits.update(index.postings[label])
    asked = index.asked
    found = {index.owners[term] for term in index.asking_for_nothing if ~term not in hits}
    found.update(
        index.owners[term]
        for term, count in hits.items()
        if term >= 0 and count == asked[term] and ~term not in hits
    )
    return found


def labels_of(preemptor: Preemptor) -> AbstractSet[LabelKey]:
    """Return all by which an anti-affinity may match the preemptor."""
    return frozenset(_each_label_of(preemptor))


def _in_both(one: AbstractSet[LabelKey], other: AbstractSet[LabelKey]) -> Iterator[LabelKey]:
    """Yield what is in both sets, in the time of the smaller one.

    Without this, a preemptor with thousands of labels would take all the time of a decision: it is
    compared with each node.
    """
    fewer, more = (one, other) if len(one) < len(other) else (other, one)
    return (label for label in fewer if label in more)


def _each_label_of(preemptor: Preemptor) -> Iterator[LabelKey]:
    namespace = {**preemptor.namespace_labels, _NAME: preemptor.namespace}
    for kind, labels in ((_POD, preemptor.labels), (_NAMESPACE, namespace)):
        for key, value in labels.items():
            yield kind, key, value
            yield kind, key, None
    if preemptor.takes_back_nodes:
        yield _TAKES_BACK_NODES


def _add(
    index: AntiAffinityIndex,
    place: int,
    terms: Sequence[PostedTerm],
    node_labels: Mapping[str, str],
) -> None:
    owners, asked, asking_for_nothing, postings = index
    for topology_key, count, wanted, excluded in terms:
        if topology_key and topology_key not in node_labels:
            continue
        number = len(owners)
        owners.append((place, topology_key))
        asked.append(count)
        if not count:
            asking_for_nothing.append(number)
        for label in wanted:
            postings.setdefault(label, []).append(number)
        for label in excluded:
            postings.setdefault(label, []).append(~number)


def _posted(pod: ScheduledPod) -> Sequence[PostedTerm]:
    if pod.posted_terms is None:
        posted = tuple(one for term in pod.anti_affinity for one in _terms_of(term))
        object.__setattr__(pod, "posted_terms", posted)
        return posted
    return pod.posted_terms


def _terms_of(term: AntiAffinity) -> Iterator[PostedTerm]:
    """Return the term for its named Namespaces, and for those with the right labels."""
    if term == TOO_LARGE:
        yield PostedTerm("", 1, (_TAKES_BACK_NODES,), ())
    if term.namespaces:
        yield _term(term, [Requirement(_NAME, "In", tuple(term.namespaces))])
    if term.namespace_requirements is not None:
        yield _term(term, term.namespace_requirements)


def _term(term: AntiAffinity, namespaces: Sequence[Requirement]) -> PostedTerm:
    asked = 0
    wanted: list[LabelKey] = []
    excluded: list[LabelKey] = []
    for kind, requirements in ((_POD, term.requirements), (_NAMESPACE, namespaces)):
        for required in requirements:
            if required.operator in _EXCLUDES:
                excluded += _labels_about(kind, required)
            else:
                asked += 1
                wanted += _labels_about(kind, required)
    return PostedTerm(term.topology_key, asked, tuple(wanted), tuple(excluded))


def _labels_about(kind: str, required: Requirement) -> Sequence[LabelKey]:
    """Return the labels that it is about; none for an unknown operator, which none satisfy."""
    if required.operator in _ABOUT_VALUES:
        return [(kind, required.key, value) for value in set(required.values)]
    return [(kind, required.key, None)] if required.operator in _ABOUT_KEY else ()
