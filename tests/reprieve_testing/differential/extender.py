"""Reprieve's webhooks as a process beside the cluster, called only by a scheduler.

No webhook is configured, so no rule changes or refuses the scenarios' objects, and no guard holds
up a deletion: only the choice of victims is compared.
"""

import json
import re
import ssl
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import yaml

from realcluster.install import BASE, MANIFESTS, NAMESPACE_FILE
from realcluster.programs import WEBHOOKS, Place, Programs
from realcluster.state import write_private
from reprieve_certs.issue import ServingNames, issue_ca, issue_serving
from reprieve_testing.cluster.handle import OPERATOR_NAMESPACE, ClusterHandle, wait_for

from .documents import PREEMPTOR

Json = Any

STANZA = MANIFESTS / "scheduler" / "stanza.yaml"
_RIGHTS = (BASE / "webhooks-rbac.yaml", MANIFESTS / "components" / "extender" / "rbac.yaml")
_POLICY = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "reprieve-policy", "namespace": OPERATOR_NAMESPACE},
    "data": {"victimOrder": "priority", "maxPreemptionPriorityLift": "2000000000"},
}
"""Upstream's order: the scenarios compare it."""
_ADDRESS = "127.0.0.1"
_SECONDS = 120.0
_CALLS = re.compile(r'reprieve_extender_calls_total\{outcome="([^"]*)"\} (\S+)')


@dataclass(frozen=True)
class RunningExtender:
    """A running extender."""

    configuration: Json
    """The published configuration with which kube-scheduler calls the extender."""
    _programs: Programs

    def calls(self) -> Counter[str]:
        """Return the number of calls so far, by outcome; outcomes without calls are absent."""
        lines = self._programs.read(WEBHOOKS, "/metrics").splitlines()
        found = (_CALLS.fullmatch(line) for line in lines)
        return +Counter({match[1]: int(float(match[2])) for match in found if match})

    def is_ready_for(self, preemptor_uid: str) -> bool:
        """Return whether the extender has seen and evaluated all objects, and can answer a
        scheduler.
        """
        (extender,) = self.configuration["extenders"]
        url = f"{extender['urlPrefix']}/{extender['preemptVerb']}"
        trust = ssl.create_default_context(cafile=extender["tlsConfig"]["caFile"])
        body = json.dumps(
            {"Pod": {"metadata": {"uid": preemptor_uid}}, "NodeNameToMetaVictims": {}}
        ).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=10, context=trust) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return False
            raise


@contextmanager
def running(handle: ClusterHandle) -> Iterator[RunningExtender]:
    """Run the webhooks with the extender for the block, which begins once they have seen the
    cluster.
    """
    port, certificates = handle.cluster.port("webhooks"), handle.cluster.home / "extender"
    stanza = yaml.safe_load(STANZA.read_text())
    (extender,) = stanza["extenders"]
    extender["urlPrefix"] = f"https://{_ADDRESS}:{port}/scheduler"
    extender["tlsConfig"]["caFile"] = str(
        _write_certificates(certificates, extender["tlsConfig"]["serverName"])
    )
    flags = (
        f"--listen-address={_ADDRESS}",
        f"--listen-port={port}",
        f"--cert-dir={certificates}",
        "--extender=true",
        # The schedulers of the scenarios have names of their own.
        "--extender-schedulers=",
        "--drain-seconds=0.2",
    )
    programs = Programs(
        handle.cluster.home, handle.kubectl, {WEBHOOKS: Place(flags, f"https://{_ADDRESS}:{port}")}
    )
    handle.kubectl.read("apply", "-f", NAMESPACE_FILE)
    handle.kubectl.apply(_POLICY)
    handle.kubectl.read("apply", *(word for file in _RIGHTS for word in ("-f", file)))
    programs.start(WEBHOOKS)
    try:
        programs.wait_until_ready(WEBHOOKS)
        made = RunningExtender(stanza, programs)
        pending = handle.kubectl.get(
            "pods", "--all-namespaces", "-l", PREEMPTOR, "--field-selector=spec.nodeName="
        )
        uid = pending["items"][0]["metadata"]["uid"]
        # Without this, the extender would leave the first scenarios to the scheduler, as it does
        # just after its start.
        wait_for("the extender has seen all", lambda: made.is_ready_for(uid), _SECONDS)
        yield made
    finally:
        programs.stop(WEBHOOKS)


def _write_certificates(directory: Path, name: str) -> Path:
    """Write the serving certificate; return the CA's file.

    Where webhooks are configured, the program does so itself.
    """
    now = datetime.now(UTC)
    authority = issue_ca(now)
    serving = issue_serving(authority, ServingNames((name,), (ip_address(_ADDRESS),)), now)
    written = {
        "tls.crt": serving.certificate_pem,
        "tls.key": serving.key_pem,
        "ca.crt": authority.certificate_pem,
    }
    for file, pem in written.items():
        write_private(directory / file, pem.decode())
    return directory / "ca.crt"
