"""Which large bodies are read: trusted before others, small before large, each peer its turn."""

import asyncio

import pytest

from reprieve_webhooks.http.body_budget import BodyBudget, Client


def client(name: str, peer: str, *, is_trusted: bool = False) -> Client:
    return Client(name, peer, is_trusted)


class Line:
    """Bodies that ask for room in a budget of 10, of which a peer has 8; `read` has the order."""

    def __init__(self) -> None:
        self.budget = BodyBudget(in_all=10, per_peer=8)
        self.read: list[str] = []
        self.waiting: dict[str, asyncio.Task[None]] = {}

    async def ask(self, name: str, size: int, peer: str, *, is_trusted: bool = False) -> None:
        async def wait() -> None:
            await self.budget.reserve(client(name, peer, is_trusted=is_trusted), size)
            self.read.append(name)

        self.waiting[name] = asyncio.create_task(wait())
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def end(self, *names: str) -> None:
        for name in names:
            self.budget.release(name)
            await asyncio.sleep(0)

    async def give_up(self, name: str) -> None:
        self.waiting[name].cancel()
        await asyncio.gather(self.waiting[name], return_exceptions=True)


async def test_the_smallest_that_waits_goes_first() -> None:
    line = Line()
    await line.ask("first", 8, "a")
    await line.ask("large", 7, "b")
    await line.ask("small", 3, "c")
    assert line.read == ["first"]
    await line.end("first")
    assert line.read == ["first", "small", "large"]


async def test_trusted_clients_go_before_smaller_ones_and_beyond_a_share() -> None:
    line = Line()
    await line.ask("first", 8, "a")
    await line.ask("small", 3, "b")
    await line.ask("trusted", 9, "c", is_trusted=True)
    await line.end("first")
    assert line.read == ["first", "trusted"]
    await line.end("trusted")
    assert line.read == ["first", "trusted", "small"]


async def test_a_peer_whose_share_is_used_up_holds_up_no_other() -> None:
    line = Line()
    await line.ask("first", 8, "a")
    await line.ask("second", 1, "a")
    await line.ask("other", 2, "b")
    assert line.read == ["first", "other"]
    assert (line.budget.is_used_by("a"), line.budget.is_used_by("c")) == (True, False)
    await line.end("first")
    assert line.read == ["first", "other", "second"]


async def test_a_body_that_gives_up_leaves_its_room_to_others() -> None:
    line = Line()
    await line.ask("first", 8, "a")
    await line.ask("gone", 3, "b")
    await line.ask("last", 4, "c")
    await line.give_up("gone")
    await line.end("first", "first", "gone")
    assert line.read == ["first", "last"]
    await line.end("last")
    assert not line.budget.is_used_by("c")


async def test_many_small_bodies_of_one_peer_do_not_go_before_a_larger_one_of_another() -> None:
    line = Line()
    await line.ask("first", 8, "a")
    for number in range(4):
        await line.ask(f"b-{number}", 3, "b")
    await line.ask("c", 5, "c")
    await line.end("first")
    assert line.read == ["first", "b-0", "c"]


async def test_ever_new_peers_with_small_bodies_do_not_keep_a_larger_one_waiting() -> None:
    line = Line()
    await line.ask("first", 8, "a")
    await line.ask("large", 8, "b")
    for number in range(9):
        await line.ask(f"small-{number}", 3, f"peer-{number}")
        await line.end(line.read[number])
    assert line.read[:4] == ["first", "small-0", "small-1", "large"]


@pytest.mark.parametrize(
    ("is_trusted", "is_read", "is_hurried"),
    [(False, False, True), (True, False, False), (False, True, False)],
    ids=["that comes slowly", "of a trusted client", "that has come"],
)
async def test_while_others_wait_for_room_a_body_has_less_time(
    *, is_trusted: bool, is_read: bool, is_hurried: bool
) -> None:
    line = Line()
    async with asyncio.timeout(1000.0) as limit:
        at_first = limit.when()
        await line.budget.reserve(client("slow", "a", is_trusted=is_trusted), 8, limit)
        await line.ask("second", 2, "b")
        if is_read:
            line.budget.finish_reading("slow")
        assert limit.when() == at_first
        await line.ask("other", 1, "c")
        assert (limit.when() != at_first) is is_hurried
    await line.end("slow")
    assert line.read == ["second", "other"]


async def test_a_body_whose_connection_is_gone_waits_no_longer() -> None:
    line = Line()
    await line.ask("first", 8, "a")
    await line.ask("gone", 7, "b")
    await line.ask("other", 7, "c")
    line.budget.give_up("gone")
    await asyncio.gather(line.waiting["gone"], return_exceptions=True)
    assert line.waiting["gone"].cancelled()
    line.budget.give_up("first")  # it is answered, and keeps its room until then
    assert line.read == ["first"]
    await line.end("first")
    assert line.read == ["first", "other"]


async def test_room_is_taken_at_once_only_where_it_is_free_and_no_other_body_waits() -> None:
    budget = Line().budget
    assert not budget.try_reserve(client("larger than a share", "a"), 9)
    assert budget.try_reserve(client("first", "a"), 8)
    assert not budget.try_reserve(client("of the same peer", "a"), 1)
    assert not budget.try_reserve(client("too large", "b"), 3)
    waiting = asyncio.create_task(budget.reserve(client("waits", "c"), 3))
    await asyncio.sleep(0)
    assert not budget.try_reserve(client("would fit", "b"), 1)
    budget.release("first")
    await waiting
    assert budget.try_reserve(client("fits", "b"), 7)
