"""State that only Reprieve writes is in no template, and in no manifest of a pod."""

from dataclasses import dataclass, field, replace

import pytest

from reprieve_policy import keys
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import PodTemplate, Resource, Spec
from reprieve_testing.objects.builders import PodBuilder, a_pod

OFFLINE = Facts(is_offline=True)
REFUSED = "Forbidden: written by Reprieve only"
IN_TEMPLATE = f"{REFUSED}: every pod of the template would be refused"
FINALIZER = f"metadata.finalizers[{keys.CLEANUP_FINALIZER}]"
GATE = f"metadata.labels[{keys.GANG_GATE_LABEL}]"
MARK = f"metadata.labels[{keys.SOFT_EVICTION}]"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pod or workload, what it was before, and what is refused."""

    resource: Resource
    old: Resource | None = None
    facts: Facts = field(default_factory=Facts)
    refused: tuple[str, ...] = ()


def with_state(key: str) -> PodBuilder:
    return a_pod().annotated(key, "x")


def path(key: str, prefix: str = "") -> str:
    return f"{prefix}metadata.annotations[{key}]"


def held(resource: Resource) -> Resource:
    metadata = replace(
        resource.metadata, finalizers=("other.example.com/x", keys.CLEANUP_FINALIZER)
    )
    return replace(resource, metadata=metadata)


def held_template() -> Resource:
    pod = held(a_pod().build())
    template = PodTemplate(metadata=pod.metadata, spec=Spec())
    return replace(a_pod().in_template_of("Job"), spec=Spec(template=template))


STATE = (
    keys.EVICTION,
    keys.PREEMPTOR,
    keys.REFUSED_SINCE,
    keys.CHECKPOINT_REQUEST,
    keys.EVICTION_REQUEST,
    keys.GANG_RELEASED_AT,
)
CASES = {
    **{
        f"{key} in a template is refused": Case(
            resource=with_state(key).in_template_of("Deployment"),
            refused=(f"{path(key, 'spec.template.')}: {IN_TEMPLATE}",),
        )
        for key in STATE
    },
    **{
        f"{key} in the manifest of a pod is refused": Case(
            resource=with_state(key).build(),
            facts=OFFLINE,
            refused=(f"{path(key)}: {REFUSED}",),
        )
        for key in STATE
    },
    **{
        f"{key} on a live pod is left to the API server's policy": Case(
            resource=with_state(key).build(), old=a_pod().build()
        )
        for key in STATE
    },
    "the finalizer in a template is refused": Case(
        resource=held_template(), refused=(f"spec.template.{FINALIZER}: {IN_TEMPLATE}",)
    ),
    "the finalizer in the manifest of a pod is refused": Case(
        resource=held(a_pod().build()), facts=OFFLINE, refused=(f"{FINALIZER}: {REFUSED}",)
    ),
    "the finalizer on a live pod is left to the API server's policy": Case(
        resource=held(a_pod().build()), old=a_pod().build()
    ),
    "a release from the gang gate in a template is refused": Case(
        resource=a_pod().labelled(keys.GANG_GATE_LABEL, "released").in_template_of("Job"),
        refused=(f"spec.template.{GATE}: {IN_TEMPLATE}",),
    ),
    "a release from the gang gate in the manifest of a pod is refused": Case(
        resource=a_pod().labelled(keys.GANG_GATE_LABEL, "released").build(),
        facts=OFFLINE,
        refused=(f"{GATE}: {REFUSED}",),
    ),
    "a release on a live pod is left to the API server's policy": Case(
        resource=a_pod().labelled(keys.GANG_GATE_LABEL, "released").build(), old=a_pod().build()
    ),
    "the label of the gate itself is admitted": Case(
        resource=a_pod().labelled(keys.GANG_GATE_LABEL, "waiting").build(), facts=OFFLINE
    ),
    "a phase in the manifest of a pod is refused": Case(
        resource=a_pod().labelled(keys.SOFT_EVICTION, "checkpointing").build(),
        facts=OFFLINE,
        refused=(f"{MARK}: {REFUSED}",),
    ),
    **{
        f"a mark that says {value!r} is refused {where}": Case(
            resource=a_pod().labelled(keys.SOFT_EVICTION, value).build(),
            facts=facts,
            refused=(f'{MARK}: Unsupported value: "{value}": supported values: "requested"',),
        )
        for value in ("true", "", "Requested")
        for where, facts in (("offline", OFFLINE), ("at admission", Facts()))
    },
    "a pod that had such a mark before may change otherwise": Case(
        resource=a_pod().labelled(keys.SOFT_EVICTION, "true").in_class(3).build(),
        old=a_pod().labelled(keys.SOFT_EVICTION, "true").in_class(3).build(),
    ),
    "a mark in the manifest of a pod is admitted": Case(
        resource=a_pod().marked().build(), facts=OFFLINE
    ),
    "a phase on a live pod is left to the API server's policy": Case(
        resource=a_pod().labelled(keys.SOFT_EVICTION, "checkpointing").build(),
        old=a_pod().marked().build(),
    ),
    "a template that had the state before may change otherwise": Case(
        resource=with_state(keys.EVICTION).in_class(3).in_template_of("Deployment"),
        old=with_state(keys.EVICTION).in_template_of("Deployment"),
    ),
    "a template without the state is admitted": Case(
        resource=a_pod().in_class(3).in_template_of("CronJob")
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_state_that_only_reprieve_writes_is_refused(case: Case) -> None:
    verdict = decide_admission(case.resource, case.old, case.facts)
    assert tuple(map(str, verdict.violations)) == case.refused
    assert not verdict.warnings
