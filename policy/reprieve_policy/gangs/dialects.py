"""The keys that state which gang a pod is in, as a table; `membership` reads it.

| dialect | upstream |
|---|---|
| native | `spec.schedulingGroup` (KEP-4671, k8s.io/api core/v1, 1.36 and later) |
| pod-group | scheduler-plugins `apis/scheduling/v1alpha1`, `PodGroupLabel` |
| koordinator-pod-group | Koordinator and document 000; in scheduler-plugins until v0.23 |
| koordinator | Koordinator `apis/extension/coscheduling.go`, `AnnotationGangPrefix` |
| volcano | volcano.sh/apis `scheduling/v1beta1/labels.go`; the older key wins there too |
| lightweight | scheduler-plugins' lightweight coscheduling, deprecated there |
| draft | document 004's own keys |
| kueue | kueue `pkg/controller/jobs/pod/constants` |
| jobset, leader-worker-set, job | the labels that these controllers write |

A *declared* name is chosen by a user for a scheduler; all declared names of a pod mean one group.
*Membership* is what a controller wrote on its own pods: a JobSet whose pods declare a group is that
group, not a second gang.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from reprieve_policy import keys
from reprieve_policy.kube.objects import PodView, pod_group_name_of
from reprieve_policy.verdict import annotation_path, label_path

NATIVE, POD_GROUP, JOB = "native", "pod-group", "job"


class GangField(NamedTuple):
    """The place of one statement about a gang."""

    holder: Literal["labels", "annotations", "spec"]
    key: str

    def read(self, view: PodView) -> str:
        """Return the text there. Empty: nothing is stated; upstream reads an empty name so too."""
        if self.holder == "labels":
            return view.labels.get(self.key, "")
        if self.holder == "annotations":
            return view.annotations.get(self.key, "")
        return pod_group_name_of(view.spec.schedulingGroup)

    def path(self, prefix: str) -> str:
        """Return the path as a message shows it."""
        if self.holder == "labels":
            return label_path(prefix, self.key)
        return (
            annotation_path(prefix, self.key)
            if self.holder == "annotations"
            else f"{prefix}spec.{self.key}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GangDialect:
    """One way to state which gang a pod is in."""

    id: str
    name: GangField
    minimum: GangField | None = None
    """How many pods must exist before any starts."""
    size: GangField | None = None
    """How many pods the gang has in all."""
    index: GangField | None = None
    """Which of several gangs of that name it is."""
    is_declared: bool = True
    is_generated_with: GangField | None = None
    """If this has a value, a controller wrote the name: no user declared it, and the pod may
    declare another one."""
    may_be_generated: bool = False
    """On a pod that has a controller, that may have written the name, as Volcano's and the Job
    controller do."""
    replacement_key: str = ""
    """The key to use instead of this old one."""


def _label(key: str) -> GangField:
    return GangField("labels", key)


def _annotation(key: str) -> GangField:
    return GangField("annotations", key)


DIALECTS: tuple[GangDialect, ...] = (
    GangDialect(
        id=NATIVE, name=GangField("spec", "schedulingGroup.podGroupName"), may_be_generated=True
    ),
    GangDialect(id=POD_GROUP, name=_label(keys.POD_GROUP)),
    GangDialect(id="koordinator-pod-group", name=_label(keys.KOORDINATOR_POD_GROUP)),
    GangDialect(
        id="koordinator",
        name=_annotation(keys.KOORDINATOR_GANG),
        minimum=_annotation(keys.KOORDINATOR_MIN_AVAILABLE),
        size=_annotation(keys.KOORDINATOR_TOTAL),
    ),
    GangDialect(
        id="volcano",
        name=_annotation(keys.VOLCANO_GROUP),
        is_generated_with=_annotation(keys.VOLCANO_TASK),
        may_be_generated=True,
    ),
    GangDialect(
        id="volcano",
        name=_annotation(keys.VOLCANO_OWN_GROUP),
        is_generated_with=_annotation(keys.VOLCANO_TASK),
        may_be_generated=True,
    ),
    GangDialect(
        id="lightweight",
        name=_label(keys.OLD_POD_GROUP),
        minimum=_label(keys.OLD_MIN_AVAILABLE),
        replacement_key=keys.POD_GROUP,
    ),
    GangDialect(
        id="draft",
        name=_label(keys.DRAFT_POD_GROUP),
        minimum=_label(keys.DRAFT_MIN_AVAILABLE),
        replacement_key=keys.POD_GROUP,
    ),
    GangDialect(
        id="kueue",
        name=_label(keys.KUEUE_GROUP),
        size=_annotation(keys.KUEUE_TOTAL),
        is_generated_with=_annotation(keys.KUEUE_PARENT),
    ),
    GangDialect(id="jobset", name=_label(keys.JOBSET), is_declared=False),
    GangDialect(
        id="leader-worker-set",
        name=_label(keys.LEADER_WORKER_SET),
        size=_annotation(keys.LEADER_WORKER_SIZE),
        index=_label(keys.LEADER_WORKER_GROUP),
        is_declared=False,
    ),
    GangDialect(id=JOB, name=_label(keys.JOB), is_declared=False),
)
"""The first one that a pod uses is its gang's dialect: declared ones first, then membership, with
the outermost controller first."""


def fields_of(dialect: GangDialect) -> Iterator[GangField]:
    """Yield every place where the dialect states something."""
    for place in (dialect.name, dialect.minimum, dialect.size, dialect.index):
        if place is not None:
            yield place


def fields_read_of(dialect: GangDialect) -> Iterator[GangField]:
    """Yield every place that the membership of a pod depends on."""
    yield from fields_of(dialect)
    if dialect.is_generated_with is not None:
        yield dialect.is_generated_with


GANG_FIELDS: frozenset[GangField] = frozenset(
    place for dialect in DIALECTS for place in fields_of(dialect)
)
"""Every place where any dialect states something about a gang."""
