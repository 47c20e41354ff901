"""Permissions, by access reviews or quotas: cached briefly, never guessed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_policy.admission.permissions import CLAIM_NON_PREEMPTIBLE
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.kube.objects import (
    Container,
    ObjectMeta,
    OwnerReference,
    Resource,
    ResourceRequirements,
    Spec,
)
from reprieve_runtime import single_flight
from reprieve_runtime.client.api import ApiError
from reprieve_testing.servers.stub_api import ACCESS_REVIEWS, StubApi, stub_api, until
from reprieve_webhooks.admission.review import AdmissionRequest, GroupVersionKind, UserInfo
from reprieve_webhooks.facts import access_review, quotas
from reprieve_webhooks.facts.cluster_facts import ClusterFacts
from reprieve_webhooks.lookups import limits

QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas"
NAMESPACES = "/api/v1/namespaces"
TEAM = {"kind": "Namespace", "metadata": {"name": "team"}}
ALICE = UserInfo(
    username="alice", uid="7", groups=("ml", "system:authenticated"), extra={"scopes": ("a", "b")}
)
JOB_CONTROLLER = UserInfo(username="system:serviceaccount:kube-system:job-controller")


class Cluster:
    """The stub, and the facts that are read from it."""

    def __init__(self, stub: StubApi, facts: ClusterFacts) -> None:
        self.stub, self.facts = stub, facts

    async def is_refused(
        self,
        user: UserInfo = ALICE,
        preemptible: str = "false",
        old: Resource | None = None,
        **metadata: Any,
    ) -> bool:
        pod = a_pod(preemptible, **metadata)
        operation = "UPDATE" if old else "CREATE"
        request = AdmissionRequest(
            uid="1",
            operation=operation,
            kind=GroupVersionKind("Pod"),
            namespace="team",
            object=pod,
            old_object=old,
            user_info=user,
        )
        facts = await self.facts.facts_for(request, pod)
        verdict = decide_admission(pod, old, facts, user=user.username)
        assert (CLAIM_NON_PREEMPTIBLE in facts.missing_permissions) is not verdict.is_allowed
        return not verdict.is_allowed

    until = staticmethod(until)


def a_pod(preemptible: str, **metadata: Any) -> Resource:
    labels = {keys.PREEMPTIBLE: preemptible}
    container = Container(resources=ResourceRequirements(requests={"cpu": "1"}))
    return Resource(
        kind="Pod",
        metadata=ObjectMeta(name="p", namespace="team", labels=labels, **metadata),
        spec=Spec(containers=(container,)),
    )


def a_quota(name: str = "team", *, least: str = "4") -> Any:
    metadata = {"name": name, "namespace": "team", "resourceVersion": "5"}
    return {
        "kind": "ElasticQuota",
        "metadata": metadata,
        "spec": {"min": {"cpu": least}},
        "status": {"used": {}},
    }


@asynccontextmanager
async def cluster(
    directory: Path, *, absent: bool = False, **stored: Any
) -> AsyncIterator[Cluster]:
    known = {NAMESPACES: {"team": TEAM}, QUOTAS: stored}
    async with stub_api(directory, collections=known, absent={QUOTAS} if absent else set()) as (
        stub,
        api,
    ):
        facts = ClusterFacts(api, "reprieve-system", "reprieve-policy", lookup_timeout_seconds=5.0)
        running = asyncio.create_task(facts.run())
        stub.lists_released.set()
        made = Cluster(stub, facts)
        try:
            await made.until(
                lambda: facts.is_synced and stub.open_watches == len(facts.watches()) - absent
            )
            yield made
        finally:
            running.cancel()
            await asyncio.wait([running])


@contextmanager
def passing(
    monkeypatch: pytest.MonkeyPatch, facts: ClusterFacts
) -> Iterator[Callable[[float], None]]:
    """Let time pass for what is remembered, without waiting."""
    single_flight: Any = facts._access_reviewer._single_flight
    now = single_flight._monotonic()
    ahead = 0.0

    def go(seconds: float) -> None:
        nonlocal ahead
        ahead += seconds

    monkeypatch.setattr(single_flight, "_monotonic", lambda: now + ahead)
    yield go


async def test_only_users_with_the_permission_may_claim_it(tmp_path: Path):
    async with cluster(tmp_path) as fixture:
        fixture.stub.granted = {"alice"}

        assert not await fixture.is_refused(ALICE)
        assert await fixture.is_refused(UserInfo(username="bob"))


async def test_the_access_review_names_the_whole_user_and_no_namespace(tmp_path: Path):
    async with cluster(tmp_path) as fixture:
        await fixture.is_refused(ALICE)

        assert fixture.stub.asked == [
            {
                "user": "alice",
                "uid": "7",
                "groups": ["ml", "system:authenticated"],
                "extra": {"scopes": ["a", "b"]},
                "resourceAttributes": {
                    "group": "reprieve.dev",
                    "resource": "nonpreemptiblepods",
                    "verb": "claim",
                },
            }
        ]


async def test_no_access_review_is_made_if_no_permission_is_needed(tmp_path: Path):
    owner = OwnerReference(apiVersion="batch/v1", kind="Job", name="j", uid="1", controller=True)
    async with cluster(tmp_path) as fixture:
        assert not await fixture.is_refused(preemptible="true")
        assert not await fixture.is_refused(old=a_pod("false"))
        assert not await fixture.is_refused(JOB_CONTROLLER, ownerReferences=(owner,))
        assert fixture.stub.calls[ACCESS_REVIEWS] == 0


async def test_a_user_who_claims_to_be_a_controller_needs_the_permission(tmp_path: Path):
    owner = OwnerReference(apiVersion="batch/v1", kind="Job", name="j", uid="1", controller=True)
    async with cluster(tmp_path) as fixture:
        assert await fixture.is_refused(ownerReferences=(owner,))


async def test_an_access_review_is_cached_for_ten_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with cluster(tmp_path) as fixture:
        with passing(monkeypatch, fixture.facts) as go:
            assert await fixture.is_refused()
            fixture.stub.granted = {"alice"}
            go(access_review.TTL_SECONDS - 1)
            assert await fixture.is_refused()
            assert fixture.stub.calls[ACCESS_REVIEWS] == 1
            go(2)
            assert not await fixture.is_refused()


async def test_a_user_with_other_groups_is_another_user(tmp_path: Path):
    async with cluster(tmp_path) as fixture:
        for groups in (("a",), ("b",), ("a", "b"), None):
            await fixture.is_refused(UserInfo(username="bob", groups=groups))

        assert [spec["groups"] for spec in fixture.stub.asked] == [["a"], ["b"], ["a", "b"], []]


async def test_during_an_outage_of_the_api_server_no_permission_is_guessed(tmp_path: Path):
    async with cluster(tmp_path) as fixture:
        fixture.stub.is_failing = True
        with pytest.raises(ApiError):
            await fixture.is_refused()
        fixture.stub.is_failing = False

        assert await fixture.is_refused()


async def test_a_flood_of_users_is_neither_passed_on_nor_kept_and_grants_nothing(tmp_path: Path):
    async with cluster(tmp_path) as fixture:
        started = asyncio.get_running_loop().time()
        flood = (fixture.is_refused(UserInfo(username=f"user-{number}")) for number in range(1200))
        assert all(await asyncio.gather(*flood))
        seconds = asyncio.get_running_loop().time() - started

        calls = fixture.stub.calls[ACCESS_REVIEWS]
        most = limits.BURST_CALLS + seconds * limits.CALLS_PER_SECOND
        assert calls <= most // 2 + 1, "the rest is for other namespaces"
        kept: Any = fixture.facts._access_reviewer._single_flight
        assert len(kept._calls) <= single_flight._MAX_RESULTS


async def test_a_user_of_any_size_is_refused_without_a_call(tmp_path: Path):
    async with cluster(tmp_path) as fixture:
        huge = UserInfo(username="bob", groups=("g" * 1000,) * 100)

        assert await fixture.is_refused(huge)
        assert fixture.stub.calls[ACCESS_REVIEWS] == 0


async def test_a_quota_with_a_min_replaces_the_permission(tmp_path: Path):
    async with cluster(tmp_path, team=a_quota()) as fixture:
        assert not await fixture.is_refused()
        fixture.stub.send("DELETED", a_quota(), QUOTAS)
        await fixture.until(lambda: not fixture.facts._quotas.reflector.items)

        assert await fixture.is_refused()


async def test_a_quota_that_is_new_counts_at_once(tmp_path: Path):
    async with cluster(tmp_path) as fixture:
        fixture.stub.send("ADDED", a_quota(), QUOTAS)
        await fixture.until(lambda: bool(fixture.facts._quotas.reflector.items))

        assert not await fixture.is_refused()


async def test_if_quotas_are_not_installed_no_review_waits_for_them(tmp_path: Path):
    async with cluster(tmp_path, absent=True) as fixture:
        assert fixture.facts.is_synced
        assert fixture.stub.calls[QUOTAS] == 1
        assert await fixture.is_refused()


async def test_quotas_that_are_installed_later_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert quotas.ABSENT_RETRY_SECONDS <= 60
    monkeypatch.setattr(quotas, "ABSENT_RETRY_SECONDS", 0.05)
    async with cluster(tmp_path, absent=True, team=a_quota()) as fixture:
        assert await fixture.is_refused()
        fixture.stub.absent.clear()
        await fixture.until(lambda: bool(fixture.facts._quotas.reflector.items))

        assert not await fixture.is_refused(UserInfo(username="bob"))


async def test_quotas_that_are_removed_leave_none_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(quotas, "ABSENT_RETRY_SECONDS", 0.05)
    async with cluster(tmp_path, team=a_quota()) as fixture:
        fixture.stub.absent.add(QUOTAS)
        fixture.stub.end_watches()
        await fixture.until(lambda: not fixture.facts._quotas.reflector.items)

        assert await fixture.is_refused()
