"""The second scheduler with only its own account's rights, as `manifests/scheduler/second` deploys
it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from realcluster.binaries import build
from realcluster.progress import Progress
from reprieve_testing.cluster.extender_cluster import (
    ExtenderCluster,
    a_pod,
    a_priority_class,
    extender_cluster,
)
from reprieve_testing.cluster.hack_cluster import SECONDS
from reprieve_testing.cluster.handle import OPERATOR_NAMESPACE, wait_for
from reprieve_testing.cluster.kubernetes_version import NATIVE_GROUPS
from reprieve_testing.manifests import MANIFESTS, read

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SECOND = MANIFESTS / "scheduler" / "second"
NAME = "reprieve-scheduler"
(CONTAINER,) = read(SECOND / "deployment.yaml")[0]["spec"]["template"]["spec"]["containers"]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExtenderCluster]:
    # The extender also reads native groups, where they are served.
    directory = tmp_path_factory.mktemp("scheduler")
    with extender_cluster("test-second", directory, nodes=1, cluster_flags=NATIVE_GROUPS) as made:
        cluster, processes = made.cluster, made.cluster.cluster.processes
        cluster.kubectl.read("apply", "-n", OPERATOR_NAMESPACE, "-f", SECOND / "rbac.yaml")
        processes.start(
            NAME,
            [build.ensure(("kube-scheduler",), Progress())["kube-scheduler"], *arguments(made)],
        )
        try:
            yield made
        finally:
            processes.stop([NAME])


def arguments(made: ExtenderCluster) -> list[str]:
    """Return the Deployment's arguments and the shipped file, with the paths of this machine."""
    (config,) = read(SECOND / "config.yaml")
    stanza = json.loads(made.config.read_text())["extenders"][0]
    config["extenders"][0]["urlPrefix"] = stanza["urlPrefix"]
    config["extenders"][0]["tlsConfig"]["caFile"] = stanza["tlsConfig"]["caFile"]
    kubeconfig = str(made.cluster.account_kubeconfig(NAME))
    config["clientConnection"] = {"kubeconfig": kubeconfig}
    file = made.config.with_name("second.yaml")
    file.write_text(yaml.safe_dump(config))
    shipped = [
        f"--config={file}" if word.startswith("--config=") else word for word in CONTAINER["args"]
    ]
    here = [f"--{who}-kubeconfig={kubeconfig}" for who in ("authentication", "authorization")]
    # Not its usual port: another one of this machine's may have it.
    return [*shipped, *here, "--secure-port=0"]


def test_the_second_scheduler_leads_with_its_own_lease_and_calls_the_extender(
    ours: ExtenderCluster,
) -> None:
    held = ("get", "lease", NAME, "-n", OPERATOR_NAMESPACE, "-o", "jsonpath={.spec.holderIdentity}")
    wait_for("the second scheduler leads", lambda: ours.cluster.kubectl.run(*held).stdout, SECONDS)
    for name, value in (("low", 1000), ("urgent", 5000)):
        ours.cluster.kubectl.apply(a_priority_class(name, value))
    before = ours.calls("chosen")
    ours.run(a_pod("victim", "low", 8, schedulerName=NAME))
    ours.run(a_pod("preemptor", "urgent", 8, schedulerName=NAME))
    assert ours.names() == {"preemptor"}
    assert ours.calls("chosen") > before
