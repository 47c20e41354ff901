"""Whether the pod has the port, container or volume that its hint names."""

from dataclasses import replace

import pytest

from reprieve_policy.admission.review import decide_admission
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.checkpointing.checkpoint_plan import DELIVERED_BY_OPERATOR, Hint
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Container, ContainerPort, Resource, Spec, VolumeMount
from reprieve_testing.objects.builders import a_pod

PATH = "metadata.annotations[reprieve.dev/checkpoint-hint]"
PORT = "must be a port that a container of the pod declares"
CONTAINER = "must name a container of the pod"
MOUNT = "must be a path inside a volume that a container of the pod mounts"
NO_AGENT = "asked by annotation: has no agent"


def a_container(
    name: str = "main", *, port: int | None = None, mount: str | None = None
) -> Container:
    return Container(
        name=name,
        ports=None if port is None else (ContainerPort(containerPort=port),),
        volumeMounts=None if mount is None else (VolumeMount(mountPath=mount),),
    )


def a_spec(*containers: Container, before: tuple[Container, ...] = ()) -> Spec:
    return Spec(priority=0, containers=containers, initContainers=before)


def as_sidecar(container: Container) -> Container:
    return replace(container, restartPolicy="Always")


CASES = {
    "a port that a container declares": ("http://:8080/x", a_spec(a_container(port=8080)), ""),
    "a port that the second container declares": (
        "http://:8080/x",
        a_spec(a_container(), a_container(port=8080)),
        "",
    ),
    "a port that a sidecar declares": (
        "grpc://:9000",
        a_spec(a_container(), before=(as_sidecar(a_container("side", port=9000)),)),
        "",
    ),
    "a port that only an init container declares, which has ended by then": (
        "http://:8080/x",
        a_spec(a_container(), before=(a_container("init", port=8080),)),
        PORT,
    ),
    "a port that is not declared": ("http://:8080/x", a_spec(a_container(port=8081)), PORT),
    "a port where none is declared": ("grpc://:9000", a_spec(a_container()), PORT),
    "a container that exists": ("signal://USR1?container=main", a_spec(a_container()), ""),
    "a sidecar that exists": (
        "signal://USR1?container=side",
        a_spec(a_container(), before=(as_sidecar(a_container("side")),)),
        "",
    ),
    "an init container": (
        "signal://USR1?container=init",
        a_spec(a_container(), before=(a_container("init"),)),
        CONTAINER,
    ),
    "a container that does not exist": (
        "signal://USR1?container=other",
        a_spec(a_container()),
        CONTAINER,
    ),
    "a file inside a mount": ("file:///dev/shm/x", a_spec(a_container(mount="/dev/shm")), ""),
    "a file inside a mount that is written with a slash": (
        "file:///dev/shm/x",
        a_spec(a_container(mount="/dev/shm/")),
        "",
    ),
    "a file deep inside a mount": ("file:///data/a/b", a_spec(a_container(mount="/data")), ""),
    "a file inside a mount of the whole": ("file:///data/x", a_spec(a_container(mount="/")), ""),
    "a file beside a mount of a similar name": (
        "file:///database/x",
        a_spec(a_container(mount="/data")),
        MOUNT,
    ),
    "a mount itself": ("file:///data", a_spec(a_container(mount="/data")), MOUNT),
    "a file where nothing is mounted": ("file:///dev/shm/x", a_spec(a_container()), MOUNT),
    "an annotation": ("annotation:", a_spec(a_container()), ""),
    "SIGTERM": ("sigterm:", a_spec(a_container()), ""),
    "a pod whose containers were not read": ("http://:8080/x", Spec(priority=0), ""),
}


def hinted(hint: str, spec: Spec) -> Resource:
    return replace(a_pod().with_hint(hint).build(), spec=spec)


@pytest.mark.parametrize(("hint", "spec", "missing"), CASES.values(), ids=CASES)
def test_a_hint_is_admitted_if_it_reaches(hint: str, spec: Spec, missing: str) -> None:
    verdict = decide_admission(hinted(hint, spec), None, Facts())
    want = [f'{PATH}: Invalid value: "{hint}": {missing}'] if missing else []
    assert [str(violation) for violation in verdict.violations] == want


@pytest.mark.parametrize(("hint", "spec"), [case[:2] for case in CASES.values()], ids=CASES)
def test_a_hint_that_needs_the_agent_causes_a_warning(hint: str, spec: Spec) -> None:
    parsed = checkpoint_plan.parse_hint(hint, "")
    warned = () if type(parsed) in DELIVERED_BY_OPERATOR else (f"{PATH}: {NO_AGENT}",)
    assert decide_admission(hinted(hint, spec), None, Facts()).warnings == warned


def test_every_delivered_scheme_is_a_hint() -> None:
    assert set(Hint.__args__) > DELIVERED_BY_OPERATOR


def test_a_template_is_checked_too() -> None:
    verdict = decide_admission(
        a_pod().with_hint("grpc://:9000").asking().in_template_of("CronJob"), None, Facts()
    )
    prefix = "spec.jobTemplate.spec.template."
    assert verdict.message == f'{prefix}{PATH}: Invalid value: "grpc://:9000": {PORT}'


SIGNALLED = {
    "a container's own first process": (a_spec(a_container()), ()),
    "the node's first process": (
        replace(a_spec(a_container()), hostPID=True),
        (f"{PATH}: asked by annotation: has hostPID, and no agent",),
    ),
    "the pod's first process": (
        replace(a_spec(a_container()), shareProcessNamespace=True),
        (f"{PATH}: asked by annotation: has shareProcessNamespace, and no agent",),
    ),
}


@pytest.mark.parametrize(("spec", "want"), SIGNALLED.values(), ids=SIGNALLED)
def test_whether_a_signal_reaches_the_container(spec: Spec, want: tuple[str, ...]) -> None:
    assert (
        decide_admission(hinted("signal://USR1?container=main", spec), None, Facts()).warnings
        == want
    )


def test_the_warning_of_a_template_fits_into_a_line() -> None:
    verdict = decide_admission(
        a_pod().with_hint("file:///dev/shm/x").asking().in_template_of("CronJob"), None, Facts()
    )
    assert verdict.warnings[0] == f"spec.jobTemplate.spec.template.{PATH}: {NO_AGENT}"
    assert len(verdict.warnings[0]) < 120


def test_an_update_of_a_pod_with_an_old_violation_is_admitted() -> None:
    before = hinted("http://:8080/x", a_spec(a_container()))
    labelled = replace(before, metadata=replace(before.metadata, labels={"colour": "red"}))
    assert decide_admission(labelled, before, Facts()).is_allowed


def test_an_unreadable_hint_is_reported_once() -> None:
    verdict = decide_admission(hinted("tcp://:1", a_spec(a_container())), None, Facts())
    assert [violation.rule for violation in verdict.violations] == ["checkpoint"]
