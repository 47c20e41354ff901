"""The agent in real pods: the webhook injects it without credentials, and it serves file hints.

Workloads that cannot serve HTTP receive their hints through it; pods that do not ask for it run
without it. Where no real node can run, the tests that need one are skipped; what the API server
does with the webhook's patch is tested anyway.
"""

import json
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mainjob import installation
from mainjob.installation import Installation, Nodes
from realcluster.programs import WEBHOOKS, Place
from realcluster.progress import Progress
from realcluster.real_nodes.image import PYTHON_IMAGE
from reprieve_policy import keys
from reprieve_policy.checkpointing import agent
from reprieve_policy.lifecycle import eviction
from reprieve_testing.cluster import overlays
from reprieve_testing.cluster.handle import cleared, wait_for
from reprieve_testing.manifests import EXAMPLES, ROOT

pytestmark = pytest.mark.cluster

CLUSTER = "reprieve-agent"
TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
REPORT = b'{"ageSeconds":0}'
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
UNFINISHED = 143
WITH_THE_LIBRARY = ("client", "launcher", "signal")
PATIENCE = 90.0

# Saves on USR1; answers in the file beside the request.
SIGNALLED = """
import json, os, signal, sys
def save(*_):
    request = json.load(open("/run/reprieve/request"))
    with open("/run/reprieve/new", "w") as file:
        json.dump({"id": request["id"], "state": "saved", "step": 7}, file)
    os.rename("/run/reprieve/new", "/run/reprieve/request.answer")
signal.signal(signal.SIGUSR1, save)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
print("ready", flush=True)
while True:
    signal.pause()
"""
# Saves by itself every other second; exits with 3 if it can read the agent's token.
SAVES = """
import pathlib, sys, time
if pathlib.Path("/var/run/secrets/reprieve.dev").exists():
    sys.exit(3)
while True:
    pathlib.Path("/run/app/request.saved").touch()
    time.sleep(2)
"""
# This program would end at once if it received the signal.
DEAF = "import time; print('ready', flush=True); time.sleep(3600)"


@pytest.fixture(scope="module")
def here() -> Iterator[Installation]:
    with cleared(CLUSTER):
        yield installation.bring_up(CLUSTER, Progress())


@pytest.fixture
def namespace(here: Installation) -> Iterator[str]:
    here.make_namespace("agents")
    yield "agents"
    here.remove_namespaces("agents")


@pytest.fixture
def real(here: Installation) -> Installation:
    if here.nodes is not Nodes.REAL:
        pytest.skip("no real node can run here")
    return here


@pytest.fixture
def reports(real: Installation) -> Iterator[str]:
    """Restart the webhooks so that pods reach them at the bridge; return the URL of reports."""
    (node,) = real.kubectl.get("nodes")["items"]
    (address,) = [
        each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP"
    ]
    before = real.programs._places[WEBHOOKS]
    url = f"https://{address}:{before.probe_url.rpartition(':')[2]}/checkpoints"
    flags = [
        *before.flags,
        *("--listen-address", "", "--serving-ips", f"127.0.0.1,{address}"),
        *("--checkpoint-url", url),
    ]
    real.programs.stop(WEBHOOKS)
    real.programs._places[WEBHOOKS] = Place(flags, before.probe_url)
    try:
        real.start(WEBHOOKS)
        yield url
    finally:
        real.programs.stop(WEBHOOKS)
        real.programs._places[WEBHOOKS] = before
        real.start(WEBHOOKS)


def a_pod(name: str, hint: str, *containers: Any, **spec: Any) -> Any:
    annotations = {keys.CHECKPOINT_HINT: hint, keys.AGENT: agent.ENABLED}
    context = {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    containers = containers or (a_container("main", DEAF),)
    spec = {"containers": containers, "securityContext": context, "restartPolicy": "Never", **spec}
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def a_container(name: str, program: str) -> Any:
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {
        "name": name,
        "image": PYTHON_IMAGE,
        "command": ["python3", "-c", program],
        "securityContext": context,
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }


def create(here: Installation, namespace: str, pod: Any) -> Any:
    return json.loads(
        here.kubectl.read("create", "-n", namespace, "-o", "json", "-f", "-", stdin=json.dumps(pod))
    )


def sidecar_of(pod: Any) -> Any:
    (found,) = [
        container
        for container in pod["spec"].get("initContainers", [])
        if container["name"] == agent.NAME
    ]
    return found


def mounts(container: Any) -> dict[str, str]:
    return {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}


def test_a_pod_that_requests_the_agent_gets_it_without_credentials_and_stays_restricted(
    here: Installation, namespace: str
) -> None:
    labelled = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": namespace, "labels": RESTRICTED},
    }
    here.kubectl.apply(labelled)
    made = create(here, namespace, a_pod("asks", "file:///run/app/request"))
    sidecar, (main,) = sidecar_of(made), made["spec"]["containers"]
    assert mounts(main)["/run/app"] == mounts(sidecar)["/run/app"] == agent.NAME
    # After the webhook, Kubernetes reads the pod again and mounts its token where nothing else is
    # mounted.
    volumes = {volume["name"]: volume for volume in made["spec"]["volumes"]}
    assert "projected" in volumes[mounts(main)[TOKEN_FOLDER]]
    assert "emptyDir" in volumes[mounts(sidecar)[TOKEN_FOLDER]]
    assert sidecar["restartPolicy"] == "Always"


def test_a_pod_that_has_the_agent_gets_no_second_one(here: Installation, namespace: str) -> None:
    made = create(here, namespace, a_pod("once", "file:///run/app/request"))
    again = {**made, "metadata": {"name": "again", "annotations": made["metadata"]["annotations"]}}
    assert sidecar_of(create(here, namespace, again)) == sidecar_of(made)


def test_a_template_is_not_changed(here: Installation, namespace: str) -> None:
    here.kubectl.read("apply", "-n", namespace, "-k", EXAMPLES / "shell")
    (job,) = here.kubectl.get("jobs", "-n", namespace)["items"]
    assert "initContainers" not in job["spec"]["template"]["spec"]


def test_an_agent_that_cannot_work_is_refused_with_all_reasons(
    here: Installation, namespace: str
) -> None:
    pod = a_pod("no", "signal://USR1?container=main", hostNetwork=True)
    done = here.kubectl.run("create", "-n", namespace, "-f", "-", stdin=json.dumps(pod))
    assert 'spec.hostNetwork: Invalid value: "true"' in done.stderr
    assert 'spec.shareProcessNamespace: Invalid value: "false"' in done.stderr


@pytest.mark.real_node
@pytest.mark.parametrize(
    "example",
    ["shell", *(pytest.param(name, marks=pytest.mark.slow) for name in WITH_THE_LIBRARY)],
)
def test_an_example_with_the_agent_saves_is_deleted_and_its_replacement_resumes(
    real: Installation, namespace: str, tmp_path: Path, example: str
) -> None:
    if example in WITH_THE_LIBRARY:
        make_library(real, namespace, tmp_path / "library.zip")
    real.kubectl.read("apply", "-n", namespace, "-k", EXAMPLES / example)
    loses_nothing(real, namespace, example)


@pytest.mark.real_node
def test_an_example_that_polls_answers_with_its_own_rights_and_its_replacement_resumes(
    real: Installation, namespace: str, tmp_path: Path
) -> None:
    real.kubectl.read("apply", "-f", EXAMPLES / "annotation" / "own-pod-only.yaml")
    real.kubectl.read("apply", "-k", overlays.with_time_to_answer(namespace, tmp_path))
    loses_nothing(real, namespace, "annotation")


@pytest.mark.slow
@pytest.mark.real_node
def test_an_example_with_grpc_saves_is_deleted_and_its_replacement_resumes(
    real: Installation, namespace: str, tmp_path: Path
) -> None:
    real.kubectl.read("apply", "-k", overlays.with_grpc(namespace, tmp_path))
    loses_nothing(real, namespace, "grpc")


def make_library(real: Installation, namespace: str, file: Path) -> None:
    """Make the ConfigMap with the client library, as `examples/client/job.yaml` says."""
    command = (sys.executable, "-m", "zipfile", "-c", file, ROOT / "client" / "reprieve_client")
    subprocess.run(command, check=True)
    words = ("configmap", "reprieve-client", "-n", namespace, f"--from-file={file}")
    real.kubectl.read("create", *words)


def loses_nothing(real: Installation, namespace: str, job: str) -> None:
    """Mark a Job's pod: it saves first, its replacement resumes, the Job is not charged for it."""
    selector = f"batch.kubernetes.io/job-name={job}"
    first = wait_for("a pod that trains", lambda: training(real, namespace, selector), PATIENCE)
    real.kubectl.read("label", "pod", first, "-n", namespace, f"{keys.SOFT_EVICTION}=requested")
    second = wait_for(
        "its replacement", lambda: training(real, namespace, selector, but=first), PATIENCE
    )
    reasons = [reason for reason, _ in events(real, namespace, first)]
    assert reasons.index("CheckpointSaved") < reasons.index("SoftEvictionDeleting")
    (saved,) = [
        note for reason, note in events(real, namespace, first) if reason == "CheckpointSaved"
    ]
    place = re.search(r"at step (\d+) in \"(/checkpoints/[^\"]+)\"", saved)
    assert place
    resumed = re.search(r"resuming from step (\d+), saved in (\S+)", log(real, namespace, second))
    assert resumed
    # On SIGTERM, the library also saves the steps since that save.
    assert int(resumed[1]) >= int(place[1])
    if job not in WITH_THE_LIBRARY:
        assert resumed.groups() == place.groups()
    (job,) = real.kubectl.get("jobs", "-n", namespace)["items"]
    assert job["status"].get("failed", 0) == 0


@pytest.mark.real_node
def test_a_signal_reaches_the_declared_container_and_no_other(
    real: Installation, namespace: str
) -> None:
    told, deaf = a_container("told", SIGNALLED), a_container("deaf", DEAF)
    pod = a_pod("signalled", "signal://USR1?container=told", deaf, told, shareProcessNamespace=True)
    pod["metadata"]["finalizers"] = ["example.com/hold"]
    create(real, namespace, pod)
    for container in ("told", "deaf"):
        wait_for(
            "the programs",
            lambda c=container: "ready" in log(real, namespace, "signalled", c),
            PATIENCE,
        )  # type: ignore[misc]
    real.kubectl.read(
        "label", "pod", "signalled", "-n", namespace, f"{keys.SOFT_EVICTION}=requested"
    )
    wait_for("the end of all", lambda: len(exit_codes(real, namespace, "signalled")) == 3, PATIENCE)
    annotations = real.kubectl.find("pod", "signalled", "-n", namespace)["metadata"]["annotations"]
    state = eviction.parse(annotations[keys.EVICTION])
    assert state is not None
    assert (state.outcome, state.checkpoint and state.checkpoint.step) == (
        eviction.CheckpointOutcome.SAVED,
        7,
    )
    # The other container has no handler: a signal to it would have ended it by USR1, not by
    # SIGTERM.
    assert exit_codes(real, namespace, "signalled") == {
        "told": UNFINISHED,
        "deaf": UNFINISHED,
        agent.NAME: 0,
    }


@pytest.mark.real_node
def test_a_workload_that_saves_by_itself_shows_when_and_no_other_token_can_say_so(
    real: Installation, namespace: str, reports: str
) -> None:
    saves = a_pod("saves", "file:///run/app/request", a_container("main", SAVES))
    # The workload has no token of its own; the agent has the one for reports.
    saves["spec"]["automountServiceAccountToken"] = False
    create(real, namespace, saves)
    create(real, namespace, a_pod("silent", "file:///run/app/request"))
    first = wait_for("the time", lambda: saved_at(real, namespace, "saves"), PATIENCE)
    wait_for("a later time", lambda: saved_at(real, namespace, "saves") > first, PATIENCE)
    assert exit_codes(real, namespace, "saves") == {}
    for audience, status in (("https://kubernetes.default.svc", 401), ("reprieve.dev", 403)):
        token = real.kubectl.read(
            "create", "token", "default", "-n", namespace, "--audience", audience
        )
        assert status_of(reports, token, REPORT) == status, audience
    bound = ("--bound-object-kind", "Pod", "--bound-object-name", "silent")
    token = real.kubectl.read(
        "create", "token", "default", "-n", namespace, "--audience", "reprieve.dev", *bound
    )
    # No API server accepts it.
    server = real.kubectl.read("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
    assert status_of(f"{server}/api/v1/namespaces/{namespace}/pods", token) == 401
    assert saved_at(real, namespace, "silent") == ""
    assert status_of(reports, token, REPORT) == 200
    assert saved_at(real, namespace, "silent")


def saved_at(here: Installation, namespace: str, pod: str) -> str:
    annotations = here.kubectl.find("pod", pod, "-n", namespace)["metadata"]["annotations"]
    return str(annotations.get(keys.LAST_CHECKPOINT_AT, ""))


def status_of(url: str, token: str, body: bytes | None = None) -> int:
    """Return the status of a call with this token."""
    headers = {"Authorization": f"Bearer {token.strip()}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, body, headers)
    unverified = ssl._create_unverified_context()
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE, context=unverified) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.real_node
def test_the_agent_is_small_and_cannot_call_the_api_server(
    real: Installation, namespace: str
) -> None:
    create(real, namespace, a_pod("small", "file:///run/app/request"))
    wait_for(
        "the agent", lambda: "listening" in log(real, namespace, "small", agent.NAME), PATIENCE
    )
    inside = ("exec", "small", "-n", namespace, "-c", agent.NAME, "--")
    assert real.kubectl.read(*inside, "ls", "-A", TOKEN_FOLDER) == ""
    status = real.kubectl.read(*inside, "cat", "/proc/1/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(fields["VmHWM"].split()[0]) < 20 * 1024
    assert fields["CapEff"].strip() == "0" * 16
    assert fields["Uid"].split() == ["65532"] * 4


@pytest.mark.real_node
def test_a_cancelled_request_is_marked_as_cancelled_in_its_file(
    real: Installation, namespace: str
) -> None:
    create(real, namespace, a_pod("spared", "file:///run/app/request"))
    wait_for(
        "the agent", lambda: "listening" in log(real, namespace, "spared", agent.NAME), PATIENCE
    )
    label = ("label", "pod", "spared", "-n", namespace)
    real.kubectl.read(*label, f"{keys.SOFT_EVICTION}=requested")
    wait_for("the request", lambda: "id" in request_in(real, namespace, "spared"), PATIENCE)
    request = request_in(real, namespace, "spared")
    real.kubectl.read(*label, f"{keys.SOFT_EVICTION}-")
    wait_for("its end", lambda: request_in(real, namespace, "spared").get("cancelled"), PATIENCE)
    assert request_in(real, namespace, "spared")["id"] == request["id"]


def request_in(here: Installation, namespace: str, pod: str) -> Any:
    """Return the request as the workload's own container sees it; empty if there is none."""
    done = here.kubectl.run(
        "exec", pod, "-n", namespace, "-c", "main", "--", "cat", "/run/app/request"
    )
    return json.loads(done.stdout) if done.status == 0 else {}


def training(here: Installation, namespace: str, selector: str, but: str = "") -> str | None:
    for pod in here.kubectl.get("pods", "-n", namespace, "-l", selector)["items"]:
        name = str(pod["metadata"]["name"])
        if name != but and "training from step" in log(here, namespace, name):
            return name
    return None


def log(here: Installation, namespace: str, pod: str, container: str | None = None) -> str:
    choice = () if container is None else ("-c", container)
    return here.kubectl.run("logs", pod, "-n", namespace, *choice).stdout


def exit_codes(here: Installation, namespace: str, name: str) -> dict[str, int]:
    status = here.kubectl.find("pod", name, "-n", namespace)["status"]
    found = (*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ()))
    ended = {each["name"]: each["state"].get("terminated") for each in found}
    return {container: state["exitCode"] for container, state in ended.items() if state}


def events(here: Installation, namespace: str, pod: str) -> list[tuple[str, str]]:
    items = here.kubectl.get("events.v1.events.k8s.io", "-n", namespace)["items"]
    ours = [item for item in items if item["regarding"]["name"] == pod and "eventTime" in item]
    return [
        (item["reason"], item.get("note", ""))
        for item in sorted(ours, key=lambda item: str(item["eventTime"]))
    ]
