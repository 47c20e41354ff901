"""A pod that asks for the agent: what keeps it from having one, and what is added to it."""

from dataclasses import replace
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_policy.admission import defaults
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.checkpointing import agent, checkpoint_plan
from reprieve_policy.checkpointing.checkpoint_plan import (
    AnnotationHint,
    FileHint,
    HttpHint,
    SignalHint,
)
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import (
    Container,
    ContainerPort,
    EmptyDir,
    NameOnly,
    Resource,
    ResourceRequirements,
    SecurityContext,
    Volume,
    VolumeMount,
)
from reprieve_policy.verdict import ListAddition
from reprieve_testing.objects.builders import PodBuilder, a_pod

HINT = "metadata.annotations[reprieve.dev/checkpoint-hint]"
AGENT_PATH = "metadata.annotations[reprieve.dev/agent]"
FILE = "file:///run/reprieve/request"
SIGNAL = "signal://USR1?container=main"
ALONE = Container(name="main")
USER = SecurityContext(runAsUser=1000)
ROOT = SecurityContext(runAsUser=0)
SHARED = Volume(name="shared", emptyDir=EmptyDir())


def with_file(*containers: Container, hint: str = FILE, **spec: Any) -> PodBuilder:
    return a_pod().with_hint(hint).with_agent().with_containers(*(containers or (ALONE,)), **spec)


def with_signal(*containers: Container, **spec: Any) -> PodBuilder:
    spec = {"shareProcessNamespace": True, "securityContext": USER, **spec}
    return a_pod().with_hint(SIGNAL).with_agent().with_containers(*(containers or (ALONE,)), **spec)


def mounting(*mounts: VolumeMount, name: str = "main") -> Container:
    return Container(name=name, volumeMounts=mounts)


def at(path: str, volume: str = "shared", **more: str) -> VolumeMount:
    return VolumeMount(name=volume, mountPath=path, **more)


NOT_ONE = (
    f'{HINT}: Invalid value: "{FILE}": what is mounted at /run/reprieve '
    "must be one emptyDir, without subPath, for the agent"
)
SYSTEM = "must be in a folder of its own, like /run/reprieve/request"
USER_PATH = "spec.containers[0].securityContext.runAsUser"
USER_TEXT = "must be the user to signal, not root, here or for the whole pod"

WORKS = {
    "a file where nothing is mounted": with_file(),
    "a file where an emptyDir is mounted": with_file(
        mounting(at("/run/reprieve/")), volumes=(SHARED,)
    ),
    "a file where two containers mount the same": with_file(
        mounting(at("/run/reprieve")),
        mounting(at("/run/reprieve"), name="other"),
        volumes=(SHARED,),
    ),
    "a file in a folder of the system that is mounted": with_file(
        mounting(at("/dev/shm")), hint="file:///dev/shm/x", volumes=(SHARED,)
    ),
    "a file below a folder of the system": with_file(hint="file:///var/lib/app/x"),
    "a signal to the pod's user": with_signal(),
    "a signal to the container's user": with_signal(
        replace(ALONE, securityContext=USER), securityContext=ROOT
    ),
    "a signal where something else is mounted": with_signal(
        mounting(at("/data")), volumes=(SHARED,)
    ),
    "on Linux, stated": with_file(os=NameOnly(name="linux")),
}

FAILS = {
    "a value other than the two": (
        a_pod().with_hint(FILE).with_agent("yes"),
        f'{AGENT_PATH}: Unsupported value: "yes": supported values: "enabled", "disabled"',
    ),
    "on the node's network": (
        with_file(hostNetwork=True),
        (
            'spec.hostNetwork: Invalid value: "true": '
            "must be false with the agent, whose port would be the node's"
        ),
    ),
    "on Windows": (
        with_file(os=NameOnly(name="windows")),
        'spec.os.name: Invalid value: "windows": must be linux with the agent',
    ),
    "a container port that is the agent's": (
        with_file(replace(ALONE, ports=(ContainerPort(containerPort=agent.PORT),))),
        (
            f'{AGENT_PATH}: Invalid value: "enabled": '
            "port 10473 is the agent's, and a container declares it"
        ),
    ),
    "in more containers than get its volume": (
        with_file(*(replace(ALONE, name=f"c{number}") for number in range(101))),
        f'{AGENT_PATH}: Invalid value: "enabled": the agent works in a pod of up to 100 containers',
    ),
    "a volume with the agent's name": (
        with_file(volumes=(Volume(name="reprieve-agent", emptyDir=EmptyDir()),)),
        (
            f'{AGENT_PATH}: Invalid value: "enabled": '
            "volume reprieve-agent is the agent's, and the pod has one"
        ),
    ),
    "a file where two volumes are mounted": (
        with_file(
            mounting(at("/run/reprieve")),
            mounting(at("/run/reprieve", "other"), name="other"),
            volumes=(SHARED, Volume(name="other", emptyDir=EmptyDir())),
        ),
        NOT_ONE,
    ),
    "a file where a part of a volume is mounted": (
        with_file(mounting(at("/run/reprieve", subPath="part")), volumes=(SHARED,)),
        NOT_ONE,
    ),
    "a file where a part by the pod's name is mounted": (
        with_file(mounting(at("/run/reprieve", subPathExpr="$(POD_NAME)")), volumes=(SHARED,)),
        NOT_ONE,
    ),
    "a file where a volume is mounted that outlives the pod": (
        with_file(mounting(at("/run/reprieve")), volumes=(Volume(name="shared"),)),
        NOT_ONE,
    ),
    "a file where a sidecar that is no agent's is on Windows and on the node's network": (
        with_file(os=NameOnly(name="windows"), hostNetwork=True, hint="file:///tmp/x"),
        (
            '[spec.hostNetwork: Invalid value: "true": '
            "must be false with the agent, whose port would be the node's, "
            'spec.os.name: Invalid value: "windows": must be linux with the agent, '
            f'{HINT}: Invalid value: "file:///tmp/x": {SYSTEM}]'
        ),
    ),
    "a signal without a shared process namespace": (
        with_signal(shareProcessNamespace=None),
        (
            'spec.shareProcessNamespace: Invalid value: "false": '
            "must be true for the agent to send signals"
        ),
    ),
    "a signal to an unknown user": (
        with_signal(securityContext=None),
        f"{USER_PATH}: Required value: {USER_TEXT}",
    ),
    "a signal to root": (
        with_signal(securityContext=ROOT),
        f'{USER_PATH}: Invalid value: "0": {USER_TEXT}',
    ),
    "a signal to a container whose root overrides the pod's user": (
        with_signal(replace(ALONE, securityContext=ROOT)),
        f'{USER_PATH}: Invalid value: "0": {USER_TEXT}',
    ),
    "a signal where something is mounted at the agent's place": (
        with_signal(mounting(at("/run/reprieve")), volumes=(SHARED,)),
        (
            f'{HINT}: Invalid value: "{SIGNAL}": '
            "what is mounted at /run/reprieve must be the agent's own volume"
        ),
    ),
    "a signal to a sidecar": (
        with_signal(
            Container(name="other"),
            initContainers=(Container(name="main", restartPolicy="Always"),),
        ),
        (
            f'{HINT}: Invalid value: "{SIGNAL}": '
            "must name a container of the pod, no sidecar, for the agent"
        ),
    ),
}
SYSTEM_FOLDERS = (
    "",
    "/tmp",
    "/etc",
    "/etc/app",
    "/usr/lib",
    "/var/run",
    "/dev",
    "/dev/shm",
    "/proc/1",
    "/sys/fs/x",
)


@pytest.mark.parametrize("pod", WORKS.values(), ids=WORKS)
def test_an_agent_that_works_is_added_without_violations(pod: PodBuilder) -> None:
    resource = pod.build()
    verdict = decide_admission(resource, None, Facts())
    assert (verdict.message, verdict.warnings) == ("[]", ())
    assert entries(resource)


@pytest.mark.parametrize(("pod", "message"), FAILS.values(), ids=FAILS)
def test_an_agent_that_could_not_work_is_refused_and_never_added(
    pod: PodBuilder, message: str
) -> None:
    assert decide_admission(pod.build(), None, Facts()).message == message
    assert not entries(pod.build())


@pytest.mark.parametrize("folder", SYSTEM_FOLDERS)
def test_a_volume_of_ours_never_hides_a_folder_of_the_system(folder: str) -> None:
    hint = f"file://{folder}/x"
    assert decide_admission(with_file(hint=hint).build(), None, Facts()).message.endswith(SYSTEM)


def test_a_template_gets_its_violations() -> None:
    verdict = decide_admission(with_file(hostNetwork=True).in_template_of("Job"), None, Facts())
    assert verdict.message.startswith("spec.template.spec.hostNetwork: ")


@pytest.mark.parametrize("hint", [None, "http://:8080/x", "annotation:"])
def test_an_agent_without_a_hint_to_deliver_causes_a_warning_and_is_not_added(
    hint: str | None,
) -> None:
    main = Container(name="main", ports=(ContainerPort(containerPort=8080),))
    pod = a_pod().with_agent().with_containers(main)
    pod = pod if hint is None else pod.with_hint(hint)
    verdict = decide_admission(pod.build(), None, Facts())
    assert verdict.is_allowed
    assert verdict.warnings == (f"{AGENT_PATH}: has no effect without a hint file:// or signal://",)
    assert not entries(pod.build())


def test_an_unreadable_hint_is_reported_once() -> None:
    verdict = decide_admission(with_file(hint="file://nowhere").build(), None, Facts())
    assert len(verdict.violations) == 1
    assert verdict.warnings == ()


@pytest.mark.parametrize(
    "pod", [with_file().annotated(keys.AGENT, "disabled"), a_pod().with_hint(FILE)]
)
def test_a_pod_that_does_not_request_the_agent_gets_none(pod: PodBuilder) -> None:
    assert not entries(pod.build())


def test_a_pod_with_unreadable_containers_is_not_checked() -> None:
    verdict = decide_admission(a_pod().with_hint(FILE).with_agent().build(), None, Facts())
    assert verdict.is_allowed


def test_a_second_review_adds_nothing_and_finds_no_violation() -> None:
    injected = with_file(
        mounting(at("/run/reprieve", "reprieve-agent")),
        volumes=(Volume(name="reprieve-agent", emptyDir=EmptyDir()),),
        initContainers=(
            Container(
                name="reprieve-agent",
                restartPolicy="Always",
                ports=(ContainerPort(containerPort=agent.PORT),),
            ),
        ),
    ).build()
    assert not entries(injected)
    verdict = decide_admission(injected, None, Facts())
    assert (verdict.message, verdict.warnings) == ("[]", ())


def test_a_template_is_never_changed() -> None:
    assert not defaults.decide_defaults(with_file().in_template_of("Job"), None, Facts())


def test_all_containers_get_the_volume_of_a_file() -> None:
    given = entries(with_file(ALONE, Container(name="other")).build())
    mount = {"name": "reprieve-agent", "mountPath": "/run/reprieve"}
    assert (
        value(given, "/spec/containers/0/volumeMounts")
        == value(given, "/spec/containers/1/volumeMounts")
        == mount
    )
    assert value(given, "/spec/volumes")["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Mi"}


def test_only_the_container_to_signal_gets_the_volume_of_a_signal() -> None:
    given = entries(with_signal(Container(name="other"), ALONE).build())
    assert [entry.path for entry in given if "volumeMounts" in entry.path] == [
        "/spec/containers/1/volumeMounts"
    ]
    sidecar = value(given, "/spec/initContainers")
    assert sidecar["command"] == [
        "reprieve-agent",
        "--request",
        "/run/reprieve/request",
        "--signal",
        "USR1",
    ]
    assert sidecar["securityContext"]["runAsUser"] == 1000


def test_the_agent_mounts_an_emptydir_that_the_containers_mount() -> None:
    given = entries(WORKS["a file where an emptyDir is mounted"].build())
    assert [entry.path for entry in given] == ["/spec/volumes", "/spec/initContainers"]
    assert value(given, "/spec/initContainers")["volumeMounts"][0] == {
        "name": "shared",
        "mountPath": "/run/reprieve",
    }


def test_the_agent_gets_no_service_account_token() -> None:
    given = entries(with_file().build())
    mounts = {
        mount["mountPath"]: mount for mount in value(given, "/spec/initContainers")["volumeMounts"]
    }
    token = mounts["/var/run/secrets/kubernetes.io/serviceaccount"]
    volumes = {entry.value["name"]: entry.value for entry in given if entry.path == "/spec/volumes"}
    assert "emptyDir" in volumes[token["name"]]  # type: ignore[operator]
    assert token["readOnly"] is True


def test_the_agent_is_a_native_sidecar_without_privileges() -> None:
    sidecar = value(entries(with_file().build()), "/spec/initContainers")
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_the_agent_runs_as_the_pods_user_unless_that_is_root() -> None:
    said = entries(with_file(securityContext=USER).build())
    assert "runAsUser" not in value(said, "/spec/initContainers")["securityContext"]
    as_root = entries(with_file(securityContext=ROOT).build())
    assert value(as_root, "/spec/initContainers")["securityContext"]["runAsUser"] == 65532


def test_no_pod_changes_its_qos_class() -> None:
    resources = value(entries(with_file().build()), "/spec/initContainers")["resources"]
    assert resources["requests"] == resources["limits"]


def test_in_a_pod_with_pod_level_resources_the_agent_requests_nothing() -> None:
    bounded = ResourceRequirements(requests={"cpu": "1"}, limits={"cpu": "1"})
    assert "resources" not in value(
        entries(with_file(resources=bounded).build()), "/spec/initContainers"
    )


def test_the_agents_image_is_a_setting() -> None:
    facts = Facts(settings=PolicySettings(agent_image="registry.example.com/agent:2"))
    given = [
        change
        for change in defaults.decide_defaults(with_file().build(), None, facts)
        if isinstance(change, ListAddition)
    ]
    assert value(given, "/spec/initContainers")["image"] == "registry.example.com/agent:2"


def test_without_the_setting_the_agents_image_is_that_of_the_webhooks() -> None:
    facts = Facts(own_image="registry.example.com/reprieve:3")
    given = [
        change
        for change in defaults.decide_defaults(with_file().build(), None, facts)
        if isinstance(change, ListAddition)
    ]
    assert value(given, "/spec/initContainers")["image"] == "registry.example.com/reprieve:3"


def test_the_agents_endpoint_is_used_only_for_hints_that_it_delivers() -> None:
    there, absent = (
        (NameOnly(name="init"), NameOnly(name="reprieve-agent")),
        (NameOnly(name="init"),),
    )
    for text in (FILE, SIGNAL):
        hint = checkpoint_plan.parse_hint(text, "")
        assert isinstance(hint, FileHint | SignalHint)
        assert agent.endpoint(hint, there) == HttpHint(agent.PORT, "/")
        assert agent.endpoint(hint, absent) is agent.endpoint(hint, None) is None
    assert agent.endpoint(AnnotationHint(), there) is None


SERVICE = agent.CheckpointService("https://webhooks.system.svc/checkpoints", "Q0E=")
REPORTS = Facts(checkpoint_service=SERVICE)


def test_the_agent_gets_a_token_of_its_own_audience_and_no_other_container_does() -> None:
    given = entries(with_file(ALONE, Container(name="other")).build(), REPORTS)
    volumes = {entry.value["name"]: entry.value for entry in given if entry.path == "/spec/volumes"}
    assert list(volumes) == [
        "reprieve-agent",
        "reprieve-agent-no-token",
        "reprieve-agent-report-token",
    ]
    token = {"audience": "reprieve.dev", "expirationSeconds": 3600, "path": "token"}
    assert volumes["reprieve-agent-report-token"]["projected"] == {
        "sources": [{"serviceAccountToken": token}]
    }
    mounted = [entry.value["name"] for entry in given if entry.path.startswith("/spec/containers/")]
    assert mounted == ["reprieve-agent", "reprieve-agent"]
    sidecar = value(given, "/spec/initContainers")
    assert sidecar["volumeMounts"][-1] == {
        "name": "reprieve-agent-report-token",
        "mountPath": "/var/run/secrets/reprieve.dev",
        "readOnly": True,
    }


def test_the_agent_gets_its_service_as_variables_which_an_older_image_ignores() -> None:
    sidecar = value(entries(with_file().build(), REPORTS), "/spec/initContainers")
    assert sidecar["command"] == ["reprieve-agent", "--request", "/run/reprieve/request"]
    assert {each["name"]: each.get("value") for each in sidecar["env"][1:]} == {
        "REPRIEVE_REPORT_URL": SERVICE.url,
        "REPRIEVE_REPORT_CA": SERVICE.ca_bundle,
        "REPRIEVE_REPORT_TOKEN_FILE": "/var/run/secrets/reprieve.dev/token",
    }


def test_without_a_service_the_agent_gets_nothing_to_report_with() -> None:
    assert "report" not in str(entries(with_file().build())).lower()


@pytest.mark.parametrize(
    "pod",
    [
        with_file(volumes=(Volume(name="reprieve-agent-report-token"),)),
        with_file().annotated("kubernetes.io/config.mirror", "hash"),
    ],
    ids=["a volume of that name", "a static pod"],
)
def test_a_pod_that_the_api_server_would_refuse_with_the_token_gets_the_agent_without_it(
    pod: PodBuilder,
) -> None:
    assert entries(pod.build(), REPORTS) == entries(pod.build()) != []


def entries(pod: Resource, facts: Facts | None = None) -> list[ListAddition]:
    return [
        change
        for change in defaults.decide_defaults(pod, None, facts or Facts())
        if isinstance(change, ListAddition)
    ]


def value(given: list[ListAddition], path: str) -> Any:
    return next(entry.value for entry in given if entry.path == path)
