"""Objects that are nested deeper than the decoder reads, or very large: any user can write them.

One of them changes nothing for others, and is checked itself.
"""

from pathlib import Path
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_testing.guard.fixture import (
    HINT,
    MARKED,
    PODS,
    a_victim,
    another_victim,
    code_of,
    guard_fixture,
)
from reprieve_testing.servers import deep_json
from reprieve_testing.servers.reviews import a_pod, a_review, patch_of, running_server
from reprieve_webhooks.admission import review

GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/team-b/podgroups"
JOBS = "/apis/batch/v1/namespaces/team-a/jobs"
JOB: dict[str, Any] = {"metadata": {"name": "j", "uid": "uid-of-j"}, "spec": {}, "status": {}}
OWNED_BY_JOB = {
    "ownerReferences": [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "j",
            "uid": "uid-of-j",
            "controller": True,
        }
    ]
}


async def test_the_group_of_a_preemptor_changes_nothing_for_its_victim(tmp_path: Path) -> None:
    group = deep_json.deepened({"metadata": {"name": "g", "namespace": "team-b"}, "spec": {}})
    async with guard_fixture(tmp_path, a_victim()) as here:
        here.stub.collections[GROUPS] = {"g": group}
        await here.nominate("high", schedulingGroup={"podGroupName": "g"}, ago=0.0)
        assert code_of(await here.delete(a_victim())) in {404, 429}
        assert here.marked() == ["train"]


OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "another victim of the set": (deep_json.deepened(another_victim("other")), JOB),
    "the Job of another victim": (
        another_victim("other", **OWNED_BY_JOB),
        deep_json.deepened(JOB),
    ),
}


@pytest.mark.parametrize(("other", "job"), OTHERS.values(), ids=OTHERS)
async def test_a_victim_gets_notice_also_beside(
    tmp_path: Path, other: dict[str, Any], job: dict[str, Any]
) -> None:
    async with guard_fixture(tmp_path, a_victim(), other) as here:
        here.facts.facts = Facts(
            operator_is_live=True, settings=PolicySettings(near_completion_seconds=600)
        )
        here.stub.collections[JOBS] = {"j": job}
        here.victim_sets.choose("high", "train", "other")
        await here.nominate("high", ago=0.0)
        assert code_of(await here.delete(a_victim())) in {404, 429}
        assert here.marked() == ["train", "other"]


LARGE = {"annotations": {"x": "y" * 600_000}}


async def test_a_group_or_a_job_of_more_than_half_a_megabyte_counts_as_one_that_states_nothing(
    tmp_path: Path,
) -> None:
    victim = a_victim(**OWNED_BY_JOB)
    async with guard_fixture(tmp_path, victim) as here:
        here.facts.facts = Facts(
            operator_is_live=True, settings=PolicySettings(near_completion_seconds=600)
        )
        here.stub.collections[JOBS] = {"j": {**JOB, "metadata": JOB["metadata"] | LARGE}}
        group = {"metadata": {"name": "g", "namespace": "team-b"} | LARGE, "spec": {}}
        here.stub.collections[GROUPS] = {"g": group}
        await here.nominate("high", schedulingGroup={"podGroupName": "g"}, ago=0.0)
        assert code_of(await here.delete(victim)) in {404, 429}
        assert here.marked() == ["train"]


async def test_a_marked_pod_hides_no_other_victim(tmp_path: Path) -> None:
    victim = another_victim(
        "own", labels=MARKED, annotations=HINT | {keys.PREEMPTOR: "uid-of-high"}
    )
    deep = deep_json.deepened(another_victim("deep", labels=MARKED))
    async with guard_fixture(tmp_path) as here:
        here.stub.collections[PODS] = {"own": victim, "deep": deep}
        found = await here.guard._reader.pods_under_eviction()
        assert {pod.metadata.name for pod in found} == {"own", "deep"}


async def test_the_victim_itself_gets_notice(tmp_path: Path) -> None:
    victim = deep_json.deepened(a_victim())
    async with guard_fixture(tmp_path, victim) as here:
        assert code_of(await here.delete_and_nominate(victim)) in {404, 429}
        assert here.marked() == ["train"]


async def test_a_new_object_is_checked_and_gets_its_defaults() -> None:
    async with running_server() as server:
        server.source.facts = Facts(namespace=NamespacePolicy(default_class=3))
        refused = deep_json.deepened(a_pod(labels={keys.PREEMPTION_CLASS: "11"}))
        assert (await server.ask("/validate", a_review(refused)))["allowed"] is False
        patches = [
            patch_of(await server.ask("/mutate", a_review(pod)))
            for pod in (a_pod(), deep_json.deepened(a_pod()))
        ]
        assert patches[0] == patches[1] != []


def test_a_template_of_any_kind_is_read_beside_a_deep_value() -> None:
    kinds = review.WELL_KNOWN
    deployment = {
        "kind": "RayCluster",
        "apiVersion": "ray.io/v1",
        "metadata": {"name": "ray", "namespace": "team-a"},
        "spec": {
            "headGroupSpec": {"template": {"metadata": {"labels": {keys.PREEMPTION_CLASS: "11"}}}}
        },
    }
    gvk = {"group": "ray.io", "version": "v1", "kind": "RayCluster"}
    body = deep_json.dumps(a_review(deep_json.deepened(deployment), kind=gvk)).encode()
    found = review.parse(body, kinds)
    assert not isinstance(found, review.Malformed), found.detail
    assert review.has_rules(found)


def test_an_object_that_is_too_large_to_be_pruned_counts_as_one_that_cannot_be_checked() -> None:
    gvk = {"group": "ray.io", "version": "v1", "kind": "RayCluster"}
    document = {"kind": "RayCluster", "metadata": {"name": "ray"}, "x": "y" * 5_000_000}
    body = deep_json.dumps(a_review(deep_json.deepened(document), kind=gvk)).encode()
    found = review.parse(body, review.WELL_KNOWN)
    assert isinstance(found, review.UncheckedRequest)
    assert review.has_rules(found)
