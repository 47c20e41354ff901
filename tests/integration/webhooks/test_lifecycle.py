"""From not ready to ready to drained: no caller meets a closed port or a wrong answer."""

import asyncio

from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Resource
from reprieve_testing.servers.reviews import a_pod, a_review, running_server
from reprieve_webhooks.admission.review import AdmissionRequest


async def test_readiness_names_what_is_missing_while_the_process_is_healthy():
    async with running_server() as server:
        server.readiness.not_ready = ("certificates", "namespaces")

        assert await server.get("/readyz") == (503, "not ready: certificates, namespaces\n")
        assert await server.get("/healthz") == (200, "ok\n")
        server.readiness.not_ready = ()
        assert await server.get("/readyz") == (200, "ok\n")


async def test_while_draining_reviews_are_answered_and_connections_closed():
    async with running_server() as server:
        server.webhooks.is_draining = True

        assert await server.get("/readyz") == (503, "not ready: draining\n")
        async with server.session.post(server.url + "/validate", json=a_review(a_pod())) as reply:
            assert (reply.status, reply.headers["Connection"]) == (200, "close")


async def test_a_review_in_progress_is_answered_before_the_port_closes():
    async with running_server() as server:
        arrived, go_on = asyncio.Event(), asyncio.Event()
        facts_for = server.source.facts_for

        async def slowly(request: AdmissionRequest, resource: Resource) -> Facts:
            arrived.set()
            await go_on.wait()
            return await facts_for(request, resource)

        server.source.facts_for = slowly  # type: ignore[method-assign]
        asking = asyncio.create_task(server.ask("/validate", a_review(a_pod())))
        await arrived.wait()
        closing = asyncio.create_task(server.close())
        # The port is closed first; the review under way still has its connection.
        async with asyncio.timeout(60):
            while await _is_open(server.port):  # noqa: ASYNC110 - no event announces a closed port
                await asyncio.sleep(0)
        go_on.set()

        assert (await asking)["allowed"] is True
        await closing


async def test_many_reviews_at_once_each_get_their_own_answer():
    async with running_server() as server:
        uids = [f"uid-{number}" for number in range(200)]
        replies = await asyncio.gather(
            *(server.ask("/mutate", a_review(a_pod(), uid=uid)) for uid in uids)
        )

        assert [reply["uid"] for reply in replies] == uids


async def test_metrics_name_no_object_namespace_or_user():
    async with running_server() as server:
        await server.ask("/validate", a_review(a_pod()))
        await server.ask(
            "/validate", a_review({"kind": "Secretive", "metadata": {"name": "hidden"}})
        )
        text = server.shown_metrics()

    assert (
        'reprieve_admission_reviews_total{kind="Pod",outcome="allowed",webhook="validate"} 1.0'
        in text
    )
    assert (
        'reprieve_admission_reviews_total{kind="other",outcome="skipped",webhook="validate"} 1.0'
        in text
    )
    assert not any(
        word in text for word in ("train", "team-a", "Secretive", "hidden", "kubernetes-admin")
    )


async def _is_open(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return False
    writer.transport.abort()
    return True
