"""`reprieve reclaim` against a real API server: the node's owner, the victims, the confirmation."""

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from reprieve_testing.cluster.handle import ClusterHandle, wait_for
from reprieve_testing.servers.workload import HINT, Workload

pytestmark = pytest.mark.cluster

KEY = "reprieve.dev/home-namespace"
NODE = "kwok-0"
GANG = {"scheduling.x-k8s.io/pod-group": "ddp"}
NON_PREEMPTIBLE = {"quota.scheduling.koordinator.sh/preemptible": "false"}
YELLOW = "\x1b[33m"


@pytest.fixture
def home(cluster: ClusterHandle) -> Iterator[str]:
    """The namespace that lent the node. The node is empty: the pods of other tests have left it."""
    cluster.set_policy()
    wait_for(f"no pod is on {NODE}", lambda: not on(cluster, NODE))
    with cluster.namespace("home") as name:
        cluster.kubectl.read("label", "node", NODE, f"{KEY}={name}", "--overwrite")
        yield name
        cluster.kubectl.read("label", "node", NODE, f"{KEY}-")
        cluster.kubectl.run("taint", "node", NODE, f"{KEY}:NoSchedule-")


@pytest.fixture
def borrower(cluster: ClusterHandle, home: str) -> Iterator[str]:
    """A namespace that borrows it."""
    assert home
    with cluster.namespace("guest") as name:
        yield name


def on_node(
    cluster: ClusterHandle, namespace: str, name: str, node: str = NODE, **metadata: Any
) -> Any:
    return cluster.create_pod(namespace, name, spec={"nodeName": node}, **metadata)


def on(cluster: ClusterHandle, node: str) -> list[Any]:
    """Return the pods of all namespaces that are bound to a node."""
    return list(
        cluster.kubectl.get("pods", "--all-namespaces", f"--field-selector=spec.nodeName={node}")[
            "items"
        ]
    )


def plan(output: str, *namespaces: str) -> list[str]:
    """Return the lines of the plan about these namespaces' pods, each as words."""
    lines = (" ".join(line.split()) for line in output.splitlines() if line.startswith("  "))
    return [line for line in lines if line.split()[1].partition("/")[0] in namespaces]


def test_pods_that_borrow_the_node_are_evicted_and_those_of_the_home_namespace_stay(
    cluster: ClusterHandle, home: str, borrower: str
) -> None:
    hint = {"reprieve.dev/checkpoint-hint": HINT, "reprieve.dev/checkpoint-timeout": "60s"}
    pod = on_node(
        cluster, borrower, "train", annotations=hint, labels={"reprieve.dev/preemption-class": "3"}
    )
    on_node(cluster, borrower, "kept", labels=NON_PREEMPTIBLE)
    on_node(cluster, borrower, "elsewhere", node="kwok-1")
    on_node(cluster, home, "own")
    operator = cluster.start_operator()
    operator.wait_leading()
    with Workload(str(pod["status"]["podIP"])) as workload:
        workload.on_post = {"state": "saved", "step": 7}
        done = cluster.reprieve("reclaim", NODE, "--yes", "--wait")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"node/{NODE} belongs to namespace {home}"
    assert plan(done.stdout, home, borrower) == [
        f"evict {borrower}/train class 3, 0 CPU-hours",
        f"stays {borrower}/kept non-preemptible",
        f"stays {home}/own it is at home",
    ]
    assert f"pod/train in namespace {borrower} soft eviction requested" in lines
    assert lines[-1].endswith(f"{borrower}/train  gone  by reprieve-reclaim  saved at step 7")
    metric = f'reprieve_preemptions_total{{namespace="{borrower}",reason="reclaim"}}'
    assert operator.metric(metric) == 1
    assert operator.stop() == 0
    assert cluster.pod(borrower, "kept") is not None
    assert cluster.pod(borrower, "elsewhere") is not None


def test_a_gang_is_evicted_or_kept_as_a_unit(
    cluster: ClusterHandle, home: str, borrower: str
) -> None:
    assert home
    on_node(cluster, borrower, "a", labels=GANG)
    on_node(cluster, borrower, "b", node="kwok-1", labels=GANG)
    done = cluster.reprieve("reclaim", NODE, "--dry-run")
    assert plan(done.stdout, borrower) == [
        f'evict {borrower}/a class 4, 0 CPU-hours, with all 2 pods of its gang "ddp"'
    ]
    on_node(cluster, borrower, "c", node="kwok-1", labels=GANG | NON_PREEMPTIBLE)
    done = cluster.reprieve("reclaim", NODE, "--dry-run")
    assert plan(done.stdout, borrower) == [f"stays {borrower}/a c of its gang is non-preemptible"]


def test_a_dry_run_changes_nothing(cluster: ClusterHandle, home: str, borrower: str) -> None:
    on_node(cluster, borrower, "train")
    done = cluster.reprieve("reclaim", f"node/{NODE}", "--dry-run", "--close")
    assert done.returncode == 0
    assert f"node/{NODE} tainted {KEY}={home}:NoSchedule (dry run)" in done.stdout
    assert f"pod/train in namespace {borrower} soft eviction requested (dry run)" in done.stdout
    assert "soft-eviction" not in str(cluster.pod(borrower, "train"))
    assert KEY not in str(cluster.kubectl.get("node", NODE)["spec"].get("taints"))


def test_a_node_that_is_tainted_keeps_its_other_taints(cluster: ClusterHandle, home: str) -> None:
    cluster.kubectl.read("taint", "node", NODE, "other=x:PreferNoSchedule", "--overwrite")
    try:
        done = cluster.reprieve("reclaim", NODE, "--yes", "--close")
        assert (done.returncode, done.stderr) == (0, "")
        taints = cluster.kubectl.get("node", NODE)["spec"]["taints"]
    finally:
        cluster.kubectl.read("taint", "node", NODE, "other-")
    assert {"key": KEY, "value": home, "effect": "NoSchedule"} in taints
    assert {taint["key"] for taint in taints} >= {"other", KEY}


def test_a_node_that_is_not_lent_is_refused(cluster: ClusterHandle, home: str) -> None:
    words = ("kwok-1", "--yes")
    done = cluster.reprieve("reclaim", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"reprieve: node/kwok-1: metadata.labels[{KEY}]: Required value: "
        "without it the node belongs to all namespaces, and no pod on it is a borrower\n"
    )
    assert (
        cluster.reprieve("reclaim", "nowhere", "--yes").stderr
        == "reprieve: node/nowhere: not found\n"
    )
    cluster.kubectl.read("label", "node", NODE, f"{KEY}={home}-slip", "--overwrite")
    done = cluster.reprieve("reclaim", NODE, "--yes")
    assert done.returncode == 2
    assert f'its home namespace "{home}-slip" does not exist' in done.stderr


def test_without_a_terminal_or_an_option_nothing_is_changed(
    cluster: ClusterHandle, home: str, borrower: str
) -> None:
    assert home
    on_node(cluster, borrower, "train")
    done = cluster.reprieve("reclaim", NODE)
    assert done.returncode == 2
    assert "stdin is not a terminal: pass --yes or --dry-run" in done.stderr
    pod = cluster.pod(borrower, "train") or {}
    assert "reprieve.dev/soft-eviction" not in pod["metadata"].get("labels", {})


def test_a_wait_ends_at_the_given_timeout(cluster: ClusterHandle, home: str, borrower: str) -> None:
    assert home
    on_node(cluster, borrower, "train")
    # No operator runs: the mark is there, and nothing comes of it.
    done = cluster.reprieve("reclaim", NODE, "--yes", "--timeout", "1s")
    assert (done.returncode, done.stderr) == (1, "reprieve: timed out: 1 of 1 pods remain\n")


def test_a_user_who_may_not_read_the_facts_marks_no_pod(
    cluster: ClusterHandle, home: str, borrower: str
) -> None:
    on_node(cluster, borrower, "train")
    role = f"reclaim-{home}"
    words = ("--verb=get,list,patch,delete", "--resource=nodes,pods")
    cluster.kubectl.read("create", "clusterrole", role, *words)
    cluster.kubectl.read(
        "create",
        "clusterrolebinding",
        role,
        f"--clusterrole={role}",
        f"--serviceaccount={borrower}:default",
    )
    try:
        kubeconfig = cluster.account_kubeconfig("default", borrower)
        done = cluster.reprieve("reclaim", NODE, "--yes", kubeconfig=kubeconfig)
    finally:
        cluster.kubectl.read("delete", "clusterrolebinding,clusterrole", role)
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot decide which pods may be evicted: " in done.stderr
    assert "/api/v1/namespaces: not allowed to read it" in done.stderr
    assert "soft-eviction" not in str(cluster.pod(borrower, "train"))


@pytest.mark.parametrize(
    ("answer", "status"), [pytest.param("n", 1, marks=pytest.mark.slow), ("y", 0)]
)
def test_on_a_terminal_the_plan_is_shown_before_a_confirmation(
    cluster: ClusterHandle, home: str, borrower: str, answer: str, status: int
) -> None:
    assert home
    on_node(cluster, borrower, "train")
    ours, theirs = pty.openpty()
    environ = os.environ | {"TERM": "xterm"}
    asking = subprocess.Popen(
        cluster.reprieve_command("reclaim", NODE),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environ,
    )
    os.close(theirs)
    try:
        shown = read_until(ours, "? [y/N]: ")
        os.write(ours, f"{answer}\n".encode())
        assert asking.wait(30) == status
    finally:
        asking.kill()
        os.close(ours)
    assert f"{YELLOW}evict " in shown
    assert "Evict " in shown
    assert f"{borrower}/train" in shown
    is_marked = "reprieve-reclaim" in str(cluster.pod(borrower, "train"))
    assert is_marked == (answer == "y")


def read_until(terminal: int, wanted: str, seconds: float = 30.0) -> str:
    deadline, shown = time.monotonic() + seconds, b""
    while wanted not in shown.decode("utf-8", "replace"):
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 65536)
    return shown.decode()


def test_a_reclamation_is_cancelled_like_any_soft_eviction(
    cluster: ClusterHandle, home: str, borrower: str
) -> None:
    assert home
    hint = {"reprieve.dev/checkpoint-hint": HINT, "reprieve.dev/checkpoint-timeout": "60s"}
    pod = on_node(cluster, borrower, "train", annotations=hint)
    operator = cluster.start_operator()
    operator.wait_leading()
    with Workload(str(pod["status"]["podIP"])):
        assert cluster.reprieve("reclaim", NODE, "--yes").returncode == 0
        cluster.wait_phase(borrower, "train", "checkpointing")
        again = cluster.reprieve("reclaim", NODE, "--yes")
        assert plan(again.stdout, borrower) == [
            f"leaving {borrower}/train it is already being evicted"
        ]
        cluster.kubectl.read("label", "pod", "train", "-n", borrower, "reprieve.dev/soft-eviction-")
        wait_for("it is cancelled", lambda: '"phase":"cancelled"' in state_of(cluster, borrower))
    kept = cluster.pod(borrower, "train")
    assert kept is not None
    assert "scheduling.koordinator.sh/soft-eviction" not in kept["metadata"]["annotations"]
    assert operator.stop() == 0


def state_of(cluster: ClusterHandle, namespace: str) -> str:
    pod = cluster.pod(namespace, "train")
    return str(pod["metadata"]["annotations"].get("reprieve.dev/eviction", "")) if pod else ""
