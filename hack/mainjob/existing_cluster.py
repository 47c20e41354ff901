"""The demo in a cluster that already exists: the chapters that need no workload.

Reprieve's programs run on this machine, beside the cluster. The cluster's API server must therefore
reach a port on this machine's loopback address, as it does if it runs on this machine too. Chapters
with workloads are left out, because the operator would have to reach the pods' addresses from here.
"""

import os
import shutil
import sys
from pathlib import Path

from realcluster import install, paths, ports
from realcluster.binaries import build
from realcluster.client.kubectl import Kubectl
from realcluster.errors import ClusterError
from realcluster.programs import OPERATOR, WEBHOOKS, Programs
from realcluster.progress import Progress

from . import installation, runner
from .installation import Installation, Nodes, UnreachableError
from .narrator import Narrator

CONSENT = "REPRIEVE_YES"


def run(kubeconfig: Path, narrator: Narrator, progress: Progress) -> int:
    """Install Reprieve into the cluster, run the chapters without a workload, and uninstall it."""
    kubectl = Kubectl(build.ensure(["kubectl"], progress)["kubectl"], kubeconfig.resolve())
    server = kubectl.read(
        "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"
    )
    _ask(
        f"Install Reprieve (its namespace, RBAC, webhooks, policies) into {server}, and remove it "
        "afterwards?"
    )
    if kubectl.find("namespace", "reprieve-system"):
        raise ClusterError(
            f"{server} already has a namespace reprieve-system: the demo would overwrite an "
            "installation"
        )
    webhooks_port, operator_port = ports.any_free(), ports.any_free()
    home = paths.state_home() / "foreign"
    programs = Programs(
        home, kubectl, installation.places(webhooks_port, operator_port, Nodes.FOREIGN)
    )
    here = Installation(home, kubectl, programs, Nodes.FOREIGN)
    try:
        _install(here, server, webhooks_port, progress)
        shown = [chapter for chapter in runner.CHAPTERS if not chapter.has_workload]
        kept = runner.run(here, narrator, shown)
    finally:
        _remove(here, webhooks_port)
    narrator.say(
        f"{len(shown)} of {len(runner.CHAPTERS)} chapters: the others need workloads whose "
        "addresses this machine reaches; `make demo` without KUBECONFIG shows them. Everything "
        "that the demo created in this cluster is removed."
    )
    return 0 if kept else 1


def _install(here: Installation, server: str, port: int, progress: Progress) -> None:
    try:
        installation.install_reprieve(here, port, progress)
    except UnreachableError:
        raise ClusterError(
            f"{server} does not reach https://127.0.0.1:{port} of this machine, where the webhooks "
            "listen; in such a cluster, run them inside: build the image (`make image`) and "
            "`kubectl apply -k manifests/base`"
        ) from None


def _ask(question: str) -> None:
    if os.environ.get(CONSENT) == "1":
        return
    if not sys.stdin.isatty():
        raise ClusterError(f"{question} Standard input is not a terminal: set {CONSENT}=1 to agree")
    if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
        raise ClusterError("nothing was done")


def _remove(here: Installation, port: int) -> None:
    for name in (WEBHOOKS, OPERATOR):
        here.programs.stop(name)
    here.remove_namespaces()
    here.kubectl.run("delete", "priorityclasses", "-l", installation.SELECTOR)
    manifests = install.render(here.kubectl, install.DEMO, port)
    here.kubectl.run("delete", "--ignore-not-found", "-f", "-", stdin=manifests)
    shutil.rmtree(here.home, ignore_errors=True)  # with the tokens of both ServiceAccounts
