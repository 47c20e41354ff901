"""What `docs/install-ways.md` has Argo CD and Flux ignore is all that differs in a cluster.

Their libraries compare and apply; their controllers do not run. The programs run as the Deployments
of the chart on a real node, and write their fields.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from realcluster.binaries import build, pins
from realcluster.progress import Progress
from realcluster.real_nodes import node
from reprieve_testing import chart
from reprieve_testing.cluster.hack_cluster import OwnCluster, own_cluster, succeed
from reprieve_testing.cluster.handle import OPERATOR_NAMESPACE, wait_for
from reprieve_testing.page_blocks import blocks

pytestmark = [pytest.mark.cluster, pytest.mark.real_node, pytest.mark.slow]

SECONDS = 180.0  # 30 are usual
PAGE = {
    found["kind"]: found["spec"]
    for text in blocks("docs/install-ways.md", "yaml")
    if "kind" in (found := yaml.safe_load(text))
}
VALIDATING = ("validatingwebhookconfiguration", "reprieve-webhooks")
DIFFERENT = ["ValidatingWebhookConfiguration/reprieve-webhooks"]
OTHER_SECONDS = 7  # a time-out that the chart does not have


@pytest.fixture(scope="module")
def ours(archive: Path) -> Iterator[OwnCluster]:
    """The chart, applied as Argo CD does it, once the webhooks have written their fields."""
    if obstacle := node.can_run():
        pytest.skip(f"no real node can run here: {obstacle}")
    build.ensure(pins.GROUPS["gitops"], Progress())
    with own_cluster("test-gitops", "--kwok-nodes", 0, "--real-nodes", 1) as cluster:
        succeed(cluster.hack("load-image", archive))
        words = ("--server-side", "--force-conflicts", "--field-manager=argocd-controller")
        cluster.kubectl.read("apply", *words, "-f", "-", stdin=json.dumps(a_list(targets())))
        condition = ("--for=condition=Available", f"--timeout={SECONDS:g}s")
        deployments = ("deployment", "--all", "-n", OPERATOR_NAMESPACE)
        done = cluster.kubectl.run("wait", *deployments, *condition, seconds=SECONDS)
        assert done.status == 0, done.output
        wait_for("the webhooks' own path of the guard", lambda: hidden_path(cluster), SECONDS)
        yield cluster


def test_argo_cd_finds_the_application_of_the_page_in_sync(ours: OwnCluster) -> None:
    ignored = PAGE["Application"]["ignoreDifferences"]
    assert argo_cd(ours, ignored) == []
    assert argo_cd(ours, []) == DIFFERENT


def test_flux_finds_no_drift_of_the_helm_release_of_the_page(ours: OwnCluster) -> None:
    ignored = PAGE["HelmRelease"]["driftDetection"]["ignore"]
    assert flux(ours, ignored, targets()) == []
    assert flux(ours, [], targets()) == DIFFERENT


def test_a_kustomization_of_flux_applies_all_but_the_guards_path(ours: OwnCluster) -> None:
    path = hidden_path(ours)
    changed = targets()
    (webhooks,) = (
        each["webhooks"] for each in changed if f"{each['kind']}/{name_of(each)}" == DIFFERENT[0]
    )
    webhooks[0]["timeoutSeconds"] = OTHER_SECONDS
    applied = flux(ours, PAGE["Kustomization"]["ignore"], changed, apply=True)
    assert [each for each in applied if "Webhook" in each] == DIFFERENT
    found = ours.kubectl.get(*VALIDATING)["webhooks"]
    assert found[0]["timeoutSeconds"] == OTHER_SECONDS
    assert hidden_path(ours) == path
    # Without the setting, it puts /guard back, and the webhooks restore their path.
    assert DIFFERENT[0] in flux(ours, [], targets(), apply=True)
    wait_for("the same path again", lambda: hidden_path(ours) == path, SECONDS)


def targets() -> list[Any]:
    """Return what the page's Application installs, with the image under its own name."""
    values = PAGE["Application"]["source"]["helm"]["valuesObject"]
    found = chart.render(values | {"image": {"repository": "reprieve"}})
    return sorted(found, key=lambda each: each["kind"] != "Namespace")


def a_list(items: list[Any]) -> Any:
    return {"apiVersion": "v1", "kind": "List", "items": items}


def name_of(found: Any) -> str:
    return str(found["metadata"]["name"])


def hidden_path(ours: OwnCluster) -> str | None:
    """Return the path of the guard that the webhooks have written; `None` while it is `/guard`."""
    webhooks = ours.kubectl.get(*VALIDATING)["webhooks"]
    paths = {each["clientConfig"]["service"]["path"] for each in webhooks}
    return next((path for path in paths if path.startswith("/guard/")), None)


def argo_cd(ours: OwnCluster, ignored: list[Any]) -> list[str]:
    """Return the objects that are out of sync."""
    wanted = targets()
    words = ("get", "-f", "-", "-o", "json", "--show-managed-fields")
    live = json.loads(ours.kubectl.read(*words, stdin=json.dumps(a_list(wanted))))["items"]
    pairs = [{"live": one, "target": other} for one, other in zip(live, wanted, strict=True)]
    assert all(name_of(pair["live"]) == name_of(pair["target"]) for pair in pairs)
    return lines("argocd-diff", ours, {"ignoreDifferences": ignored, "pairs": pairs})


def flux(ours: OwnCluster, ignored: list[Any], wanted: list[Any], *, apply: bool = False) -> Any:
    """Return the objects that have drifted, or those that were changed."""
    return lines("flux-drift", ours, {"ignore": ignored, "targets": wanted, "apply": apply})


def lines(program: str, ours: OwnCluster, given: Any) -> list[str]:
    """Return what a program prints that gets JSON."""
    done = subprocess.run(
        [build.path_of(program)],
        input=json.dumps(given),
        env=os.environ | {"KUBECONFIG": str(ours.cluster.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
