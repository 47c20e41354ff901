"""The rights of the example's ServiceAccount, checked on the real API server.

What its own Role allows, and what own-pod-only.yaml leaves of that.
"""

import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from realcluster.client import api
from reprieve_policy import keys
from reprieve_testing import manifests
from reprieve_testing.cluster.handle import ClusterHandle, wait_for
from reprieve_testing.manifests import EXAMPLES

pytestmark = pytest.mark.cluster

ACCOUNT = "checkpoint-answers"
OWN_POD_ONLY = EXAMPLES / "annotation" / "own-pod-only.yaml"
NOT_ITS_OWN = "a workload may answer for its own pod only, with that pod's own token"
NOTHING_ELSE = "a workload may write its answer and change nothing else"
CHANGES: dict[str, Any] = {
    "an image": {"spec": {"containers": [{"name": "main", "image": "elsewhere/another:1"}]}},
    "the active deadline": {"spec": {"activeDeadlineSeconds": 1}},
    "a label": {"metadata": {"labels": {"app": "another"}}},
    "an added annotation": {"metadata": {"annotations": {"example.com/added": "yes"}}},
    "a removed annotation": {"metadata": {"annotations": {"example.com/kept": None}}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/hold"]}},
}
ANSWER = {"metadata": {"annotations": {keys.CHECKPOINT_ANSWER: '{"state":"saved"}'}}}


@dataclass(frozen=True)
class Workloads:
    """Two pods of one ServiceAccount, and its tokens: `mine` is bound to a pod, `loose` is not."""

    cluster: ClusterHandle
    namespace: str
    mine: str = field(repr=False)
    loose: str = field(repr=False)

    def patch(self, name: str, body: Any, token: str = "") -> str:
        """Merge `body` into a pod as the workload would; return the refusal, or an empty text."""
        cluster = self.cluster.cluster
        url = f"{cluster.api_server}/api/v1/namespaces/{self.namespace}/pods/{name}"
        headers = {
            "Authorization": f"Bearer {token or self.mine}",
            "Content-Type": "application/strategic-merge-patch+json",
        }
        request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="PATCH")
        try:
            with urllib.request.urlopen(request, timeout=20, context=api._context(cluster)):
                return ""
        except urllib.error.HTTPError as error:
            with error:
                return str(json.loads(error.read())["message"])


@pytest.fixture(scope="module")
def workloads(cluster: ClusterHandle) -> Iterator[Workloads]:
    with cluster.namespace("answers") as namespace:
        account, role, binding = manifests.read(EXAMPLES / "annotation" / "rbac.yaml")
        binding = {**binding, "subjects": [{**binding["subjects"][0], "namespace": namespace}]}
        for found in (account, role, binding):
            cluster.kubectl.apply(
                {**found, "metadata": {**found["metadata"], "namespace": namespace}}
            )
        for name in ("mine", "other"):
            cluster.kubectl.apply(a_pod(name, namespace))
        uid = cluster.pod(namespace, "mine")["metadata"]["uid"]
        bound = ("--bound-object-kind=Pod", "--bound-object-name=mine", f"--bound-object-uid={uid}")
        making = ("create", "token", ACCOUNT, "-n", namespace)
        mine, loose = (cluster.kubectl.read(*making, *words).strip() for words in (bound, ()))
        ours = Workloads(cluster, namespace, mine, loose)
        wait_for("its right", lambda: not ours.patch("mine", ANSWER))
        # The API server enforces a new ValidatingAdmissionPolicy after a moment, and only where a
        # value changes.
        attempts = itertools.count()
        wait_for(
            "the policy for Reprieve's own keys",
            lambda: ours.patch("mine", a_request(next(attempts))),
        )
        yield ours


@pytest.fixture(scope="module")
def held(workloads: Workloads) -> Iterator[Workloads]:
    """Put the policy in force for as long as tests use it."""
    workloads.cluster.kubectl.read("apply", "-f", OWN_POD_ONLY)
    wait_for("the policy", lambda: NOT_ITS_OWN in workloads.patch("other", ANSWER))
    yield workloads
    workloads.cluster.kubectl.read("delete", "-f", OWN_POD_ONLY)


def a_request(attempt: int) -> Any:
    return {"metadata": {"annotations": {keys.CHECKPOINT_REQUEST: f'{{"attempt":{attempt}}}'}}}


def a_pod(name: str, namespace: str) -> Any:
    metadata = {"name": name, "namespace": namespace, "annotations": {"example.com/kept": "yes"}}
    container = {"name": "main", "image": "localhost/reprieve/python:1", "imagePullPolicy": "Never"}
    spec = {"schedulerName": "nobody", "serviceAccountName": ACCOUNT, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("token", ["mine", "loose"])
def test_only_reprieve_writes_requests_even_if_a_role_allows_more(
    workloads: Workloads, token: str
) -> None:
    assert "Forbidden" in workloads.patch("mine", a_request(-1), getattr(workloads, token))


def test_with_the_policy_a_pod_answers_for_itself(held: Workloads) -> None:
    assert held.patch("mine", ANSWER) == ""
    annotations = held.cluster.pod(held.namespace, "mine")["metadata"]["annotations"]
    assert json.loads(annotations[keys.CHECKPOINT_ANSWER]) == {"state": "saved"}


def test_with_the_policy_a_pod_does_not_answer_for_another(held: Workloads) -> None:
    assert NOT_ITS_OWN in held.patch("other", ANSWER)


def test_with_the_policy_a_token_without_a_pod_answers_for_no_pod(held: Workloads) -> None:
    assert NOT_ITS_OWN in held.patch("mine", ANSWER, held.loose)


@pytest.mark.parametrize("change", CHANGES)
def test_with_the_policy_a_pod_changes_nothing_else_of_itself(held: Workloads, change: str) -> None:
    body = CHANGES[change]
    assert NOTHING_ELSE in held.patch("mine", body)
    both = {**body, "metadata": {**body.get("metadata", {})}}
    both["metadata"]["annotations"] = {
        **both["metadata"].get("annotations", {}),
        **ANSWER["metadata"]["annotations"],
    }
    assert NOTHING_ELSE in held.patch("mine", both)


def test_with_the_policy_others_patch_pods_as_before(held: Workloads) -> None:
    held.cluster.annotate(held.namespace, "other", "example.com/added=yes")
