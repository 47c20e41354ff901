"""Whose tokens are reviewed, how often, and for whom no review is left."""

from dataclasses import dataclass, field

import pytest

from reprieve_runtime.rate_limit import Rate, RateLimits
from reprieve_runtime.serving.token_reviews import (
    ACCEPTED_SECONDS,
    KNOWN_SECONDS,
    REFUSED_SECONDS,
    TokenReviews,
    bearer_token,
)
from reprieve_runtime.single_flight import RateLimitedError

LIMITS = RateLimits(Rate(1, 4), per_namespace=Rate(1, 2))
HERE, ELSEWHERE = "10.0.0.1", "10.0.0.2"


@dataclass
class Reviewer:
    """An API server that accepts some tokens, and the time."""

    accepted: set[str] = field(default_factory=set)
    reviewed: list[str] = field(default_factory=list)
    now: float = 1000.0
    max_known: int = 100

    def __post_init__(self) -> None:
        self.reviews: TokenReviews[bool] = TokenReviews(
            self._review,
            lambda is_accepted: is_accepted,
            limits=LIMITS,
            max_known=self.max_known,
            monotonic=lambda: self.now,
        )

    async def _review(self, token: str) -> bool:
        self.reviewed.append(token)
        return token in self.accepted

    async def result(self, token: str, peer: str = HERE) -> bool | None:
        """Return the result; `None` where no review may be made."""
        try:
            return await self.reviews.result(token, peer)
        except RateLimitedError:
            return None


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer a.b.c", "a.b.c"),
        ("bearer  opaque== ", "opaque=="),
        (f"Bearer {'a' * 4096}", "a" * 4096),
        (f"Bearer {'a' * 4097}", None),
        ("Bearer ", None),
        ("Bearer a b", None),
        ("Bearer é", None),
        ("Basic YQ==", None),
        ("", None),
    ],
)
def test_a_token_has_the_scheme_characters_and_length_of_one(
    header: str, token: str | None
) -> None:
    assert bearer_token(header) == token


@pytest.mark.parametrize(("token", "seconds"), [("a", ACCEPTED_SECONDS), ("b", REFUSED_SECONDS)])
async def test_a_result_is_used_for_a_while_and_then_reviewed_anew(
    token: str, seconds: float
) -> None:
    reviewer = Reviewer({"a"})
    for passed, reviews in ((0.0, 1), (seconds - 0.1, 1), (0.1, 2)):
        reviewer.now += passed
        assert await reviewer.result(token) is (token == "a")
        assert len(reviewer.reviewed) == reviews, passed


async def test_new_tokens_of_one_address_take_a_share_of_the_reviews() -> None:
    reviewer = Reviewer()
    assert [await reviewer.result(f"{n}") for n in range(3)] == [False, False, None]
    assert [await reviewer.result(f"{n}", ELSEWHERE) for n in range(3, 6)] == [False, None, None]
    assert [await reviewer.result(f"{n}", f"10.0.0.{n}") for n in (6, 7)] == [False, None]
    assert reviewer.reviewed == ["0", "1", "3", "6"]


async def test_known_tokens_are_reviewed_apart_from_new_ones_for_an_hour() -> None:
    reviewer = Reviewer({"known"})
    assert await reviewer.result("known") is True
    reviewer.now += KNOWN_SECONDS - 1
    flood = [await reviewer.result(f"{n}", f"10.0.1.{n}") for n in range(5)]
    assert flood == [False] * 4 + [None]
    assert reviewer.reviews.is_known("known")
    assert await reviewer.result("known") is True
    reviewer.now += KNOWN_SECONDS
    assert not reviewer.reviews.is_known("known")


async def test_a_known_token_that_is_refused_is_known_no_more() -> None:
    reviewer = Reviewer({"known"})
    assert await reviewer.result("known") is True
    reviewer.now += ACCEPTED_SECONDS
    reviewer.accepted.clear()
    assert await reviewer.result("known") is False
    assert not reviewer.reviews.is_known("known")


async def test_so_many_tokens_are_known_at_a_time_and_only_their_digests_are_kept() -> None:
    reviewer = Reviewer({"first", "second"}, max_known=1)
    for token in ("first", "second"):
        assert await reviewer.result(token) is True
    assert [reviewer.reviews.is_known(token) for token in ("first", "second")] == [False, True]
    assert all(len(digest) == 32 for digest in reviewer.reviews._accepted)
