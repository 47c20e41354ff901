"""Only Reprieve writes its records on the owners of victims, whatever other rights their author
has.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_testing.cluster.handle import ClusterHandle, wait_for
from reprieve_testing.cluster.impersonated_users import ImpersonatedUser, role, rule, until_answered

pytestmark = pytest.mark.cluster

NAMESPACE = "guard-ledgers"
OPERATOR = "system:serviceaccount:reprieve-system:reprieve-operator"
LEDGER = '{"v":1,"slots":{}}'
NEEDS_REPORT = (
    "Forbidden: written by Reprieve only "
    '(needs verb "report" on softevictions.reprieve.dev, cluster-wide)'
)
KEYS = [keys.LEDGER, keys.SUSPENDED]
POD = {
    "spec": {
        "restartPolicy": "Never",
        "schedulerName": "nobody",
        "containers": [{"name": "main", "image": "none"}],
    }
}


def job(name: str, **metadata: Any) -> dict[str, Any]:
    naming = {"name": name, "namespace": NAMESPACE, **metadata}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": naming,
        "spec": {"suspend": True, "template": POD},
    }


def app(kind: str, **metadata: Any) -> dict[str, Any]:
    labels = {"app": kind.lower()}
    pod = {"spec": POD["spec"] | {"restartPolicy": "Always"}, "metadata": {"labels": labels}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod}
    naming: dict[str, Any] = {"name": "owner", "namespace": NAMESPACE, **metadata}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": naming, "spec": spec}


@pytest.fixture(scope="module")
def owner(cluster: ClusterHandle) -> Iterator[ImpersonatedUser]:
    """A user who has every right in the namespace, by wildcards."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    cluster.kubectl.apply(namespace, *role("owner", NAMESPACE, [rule("*", "*", group="*")]))
    cluster.kubectl.apply(job("owner"), app("StatefulSet"), app("ReplicaSet"), app("Deployment"))
    person = ImpersonatedUser(cluster.kubectl, "owner", NAMESPACE)
    until_answered(NEEDS_REPORT, lambda: annotate(person, "job", keys.LEDGER, "--dry-run=server"))
    yield person
    cluster.kubectl.run("delete", "namespace", NAMESPACE, "--wait=false")


def annotate(person: ImpersonatedUser, kind: str, key: str, *words: str) -> Any:
    return person.run("annotate", kind, "owner", f"{key}={LEDGER}", *words)


@pytest.mark.parametrize("way", ["", "status"])
@pytest.mark.parametrize("part", ["labels", "annotations"])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kind", ["job", "statefulset", "replicaset"])
def test_the_author_of_an_owner_may_not_write_its_ledger(
    owner: ImpersonatedUser, kind: str, key: str, part: str, way: str
) -> None:
    value = "true" if part == "labels" else LEDGER
    through = (f"--subresource={way}",) if way else ()
    patch = json.dumps({"metadata": {part: {key: value}}})
    done = owner.run("patch", kind, "owner", *through, "--type=merge", "-p", patch)
    assert done.status != 0
    assert f"metadata.{part}[{key}]: {NEEDS_REPORT}" in done.output


def test_no_user_creates_an_owner_with_a_forged_ledger(owner: ImpersonatedUser) -> None:
    forged = job("forged", annotations={keys.LEDGER: LEDGER}, labels={keys.LEDGER: "true"})
    done = owner.run("create", "-f", "-", stdin=json.dumps(forged))
    assert done.status != 0
    assert NEEDS_REPORT in done.output


def test_no_user_gives_replicasets_a_forged_ledger_by_way_of_a_deployment(
    owner: ImpersonatedUser,
) -> None:
    """Its ReplicaSets are labelled like its template, and annotated like itself."""
    forged = app("Deployment", name="forged", annotations={keys.LEDGER: LEDGER})
    forged["spec"]["template"]["metadata"]["labels"][keys.LEDGER] = "true"
    done = owner.run("create", "-f", "-", stdin=json.dumps(forged))
    assert done.status != 0
    assert (
        f"spec.template.metadata.labels[{keys.LEDGER}]: Forbidden: written by Reprieve only"
        in done.output
    )


def test_the_operator_writes_the_ledger_others_keep_it_and_a_replace_may_drop_it(
    cluster: ClusterHandle, owner: ImpersonatedUser
) -> None:
    operator = ImpersonatedUser(cluster.kubectl, OPERATOR, NAMESPACE)
    kept = {"metadata": {"annotations": {keys.LEDGER: LEDGER}, "labels": {keys.LEDGER: "true"}}}
    for kind in ("job", "statefulset", "replicaset"):
        done = operator.run("patch", kind, "owner", "--type=merge", "-p", json.dumps(kept))
        assert done.status == 0, done.output
        assert owner.run("label", kind, "owner", "team=research").status == 0
        assert (
            NEEDS_REPORT
            in owner.run("annotate", kind, "owner", "--overwrite", f"{keys.LEDGER}={{}}").output
        )
        assert owner.run("label", kind, "owner", f"{keys.LEDGER}-").status == 0
        assert owner.run("annotate", kind, "owner", f"{keys.LEDGER}-").status == 0


def test_a_rollback_that_copies_an_earlier_replicasets_ledger_is_admitted(
    cluster: ClusterHandle, owner: ImpersonatedUser
) -> None:
    """`kubectl rollout undo` copies a ReplicaSet's annotations to its Deployment, which passes them
    on.
    """
    operator = ImpersonatedUser(cluster.kubectl, OPERATOR, NAMESPACE)
    first = wait_for("the first ReplicaSet", lambda: replica_sets(cluster, set()))
    done = operator.run("annotate", "replicaset", first[0], f"{keys.LEDGER}={LEDGER}")
    assert done.status == 0, done.output
    change = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "other"}]}}}}
    assert owner.run("patch", "deployment", "owner", "-p", json.dumps(change)).status == 0
    wait_for("the second ReplicaSet", lambda: replica_sets(cluster, set(first)))
    undone = owner.run("rollout", "undo", "deployment/owner", "--to-revision=1")
    assert undone.status == 0, undone.output
    wait_for("the revision", lambda: revision_of(cluster, first[0]) == "3")
    again = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "third"}]}}}}
    assert owner.run("patch", "deployment", "owner", "-p", json.dumps(again)).status == 0
    wait_for("the third ReplicaSet", lambda: len(replica_sets(cluster, set(first))) == 2)
    kept = cluster.kubectl.get("replicaset", first[0], "-n", NAMESPACE)["metadata"]["annotations"]
    assert kept[keys.LEDGER] == LEDGER


def replica_sets(cluster: ClusterHandle, known: set[str]) -> list[str]:
    found = cluster.kubectl.get("replicasets", "-n", NAMESPACE, "-l", "app=deployment")["items"]
    return [item["metadata"]["name"] for item in found if item["metadata"]["name"] not in known]


def revision_of(cluster: ClusterHandle, name: str) -> str:
    found = cluster.kubectl.get("replicaset", name, "-n", NAMESPACE)
    return str(found["metadata"]["annotations"]["deployment.kubernetes.io/revision"])
