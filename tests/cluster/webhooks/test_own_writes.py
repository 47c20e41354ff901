"""What the webhooks write into objects of the base: all of it is listed, and written again if lost.

docs/install-ways.md lists it for tools that compare the cluster with a repository;
docs/runbook/alerts.md says what to do about a Secret that is damaged or lost.

A cluster of its own, because all of Reprieve's webhooks are installed. The webhooks check their
certificates every two seconds instead of every sixty.
"""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from realcluster import install
from realcluster.programs import WEBHOOKS
from reprieve_policy import keys
from reprieve_testing.cluster.hack_cluster import NAMESPACE, OwnCluster, own_cluster
from reprieve_testing.cluster.handle import OPERATOR_NAMESPACE, wait_for
from reprieve_testing.cluster.impersonated_users import until_answered

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SECRET = ("secret", "reprieve-webhook-certs", "-n", OPERATOR_NAMESPACE)
REFUSED = "denied the request"
BAD_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "bad", "labels": {keys.PREEMPTION_CLASS: "x"}},
    "spec": {"containers": [{"name": "main", "image": "none"}]},
}


@pytest.fixture(scope="module")
def ours() -> Iterator[OwnCluster]:
    with own_cluster("test-own-writes", "--kwok-nodes", 0) as cluster:
        programs = cluster.install_webhooks("--certificate-check-seconds", 2)
        programs.start(WEBHOOKS)
        try:
            programs.wait_until_ready(WEBHOOKS)
            until_refused(cluster)
            yield cluster
        finally:
            programs.stop(WEBHOOKS)


def until_refused(ours: OwnCluster) -> None:
    """Wait until the API server asks the webhooks, which refuse the pod."""
    words = ("create", "-n", NAMESPACE, "--dry-run=server", "-f", "-")
    until_answered(REFUSED, lambda: ours.kubectl.run(*words, stdin=json.dumps(BAD_POD)))


def certificates(ours: OwnCluster) -> dict[str, str]:
    """Return the data of the Secret; empty without it, or while it is empty."""
    found = ours.kubectl.find(*SECRET)
    return (found or {}).get("data") or {}


def trusted(ours: OwnCluster) -> set[bytes]:
    """Return what the API server trusts, by the webhook configurations."""
    kinds = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
    found = [ours.kubectl.get(kind, "reprieve-webhooks") for kind in kinds]
    webhooks: list[Any] = [each for one in found for each in one["webhooks"]]
    return {base64.b64decode(each["clientConfig"]["caBundle"]) for each in webhooks}


def test_no_program_writes_into_the_base_but_what_the_page_lists(ours: OwnCluster) -> None:
    written: dict[str, set[str]] = {}
    rendered = install.render(ours.kubectl, install.LOCAL, ours.cluster.port("webhooks"))
    words = ("get", "-f", "-", "-o", "json", "--show-managed-fields")
    for each in json.loads(ours.kubectl.read(*words, stdin=rendered))["items"]:
        for entry in each["metadata"].get("managedFields", ()):
            if entry["manager"].startswith("reprieve"):
                written.setdefault(each["kind"], set()).update(leaves(entry["fieldsV1"]))
    data = {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert written.pop("Secret") <= data | {"next-ca.crt", "next-ca.key", "data"}
    # The URL stands for the path of the Service, because the programs are local processes here.
    assert written == {
        "MutatingWebhookConfiguration": {"caBundle"},
        "ValidatingWebhookConfiguration": {"caBundle", "url"},
    }
    page = (install.MANIFESTS.parent / "docs" / "install-ways.md").read_text(encoding="utf-8")
    assert ".webhooks[]?.clientConfig.caBundle" in page
    assert ".webhooks[]?.clientConfig.service.path" in page


def test_applied_server_side_only_the_guards_path_differs(ours: OwnCluster) -> None:
    rendered = install.render(ours.kubectl, install.LOCAL, ours.cluster.port("webhooks"))
    done = ours.kubectl.run("diff", "--server-side", "--force-conflicts", "-f", "-", stdin=rendered)
    # But for kubectl's own record of what it applied before, a line of JSON.
    changes = [line for line in done.stdout.splitlines() if re.match(r"[-+] +[^ {]", line)]
    # The generation counts each write.
    fields = {line[1:].strip().partition(":")[0] for line in changes}
    assert fields == {"url", "generation"}, done.output
    paths = [line for line in changes if " url:" in line]
    assert len(paths) == 4
    assert all("/guard" in line for line in paths)


def leaves(fields: Any) -> Iterator[str]:
    """Yield the names of the fields that an entry of `managedFields` owns."""
    for key, value in fields.items():
        if value and value != {".": {}}:
            yield from leaves(value)
        elif key.startswith("f:"):
            yield key.removeprefix("f:")


def test_a_damaged_secret_is_mended_and_what_can_be_read_stays_trusted(ours: OwnCluster) -> None:
    before = certificates(ours)
    damage = json.dumps({"data": {"tls.key": base64.b64encode(b"damaged").decode()}})
    ours.kubectl.read("patch", *SECRET, "--type=merge", "-p", damage)
    after = wait_for(
        "certificates that are not damaged",
        lambda: (found := certificates(ours)).get("tls.key") not in (None, _of(damage)) and found,
    )
    assert after["tls.crt"] != before["tls.crt"]
    old = base64.b64decode(before["ca.crt"])
    wait_for("the CA of before is trusted", lambda: all(old in pem for pem in trusted(ours)))
    until_refused(ours)


def _of(damage: str) -> str:
    return str(json.loads(damage)["data"]["tls.key"])


def test_a_lost_secret_is_filled_once_the_base_is_applied_again(ours: OwnCluster) -> None:
    before = certificates(ours)
    ours.kubectl.read("delete", *SECRET)
    # What is served does not change.
    until_refused(ours)
    assert not certificates(ours)
    install.install(ours.kubectl, install.LOCAL, ours.cluster.port("webhooks"))
    after = wait_for("new certificates", lambda: certificates(ours) or None)
    assert after["ca.crt"] != before["ca.crt"]
    new = base64.b64decode(after["ca.crt"])
    wait_for("the API server trusts them", lambda: trusted(ours) == {new})
    until_refused(ours)
