"""docs/guard.md and docs/guard-reference.md agree with the program.

The figures are the program's, the arithmetic follows from them, and statements about other projects
have a source.
"""

import math
import re
from datetime import UTC, datetime

import pytest

from reprieve_policy.kube.limits import disruption_budgets
from reprieve_policy.preemption import guard, retry_times
from reprieve_policy.preemption.guard import GuardDecision, RequestKind
from reprieve_policy.verdict import Violation, ViolationKind
from reprieve_testing import manifests
from reprieve_testing.guard import scenarios
from reprieve_webhooks.guard import nominated_pods, reader, refusal_history, scheduler_mode
from reprieve_webhooks.lookups import limits

DOCS = manifests.ROOT / "docs"
PAGES = {
    name: (DOCS / name).read_text(encoding="utf-8") for name in ("guard.md", "guard-reference.md")
}
TEXT = "\n".join(PAGES.values())
PAGE = " ".join(TEXT.split())

TRIES = 11
"""The calls of a Kubernetes client that receives a retry time (client-go, `rest/request.go`:
`maxRetries` after the first).
"""
IN_WORDS = {4: "four", 5: "five", 6: "six", 11: "eleven", 100: "hundred"}
SPANS = {1: "a second", 60: "a minute"}
ASKING = {"preemptions.reprieve.dev", "evictions.reprieve.dev"}
(WAITED_FOR,) = {
    found["timeoutSeconds"]
    for found in manifests.named("ValidatingWebhookConfiguration", "reprieve-webhooks")["webhooks"]
    if found["name"] in ASKING
}

FIGURES: dict[str, tuple[str, object]] = {
    "the shortest time": (r"between (\S+) and \S+ seconds", retry_times.MIN_RETRY_SECONDS),
    "the longest time": (r"between \S+ and (\S+) seconds", retry_times.MAX_RETRY_SECONDS),
    "the limit of every retry time": (
        r"no time is longer than (\S+) s\b",
        retry_times.MAX_RETRY_SECONDS,
    ),
    "the time for each of several victims": (
        r"(\d+)(?: seconds)? for each",
        retry_times.MIN_RETRY_SECONDS,
    ),
    "the time after a mark that could not be written": (
        r"asked for again in (\S+) s\b",
        retry_times.MIN_RETRY_SECONDS,
    ),
    "the time of a refusal": (r"refused \| (\d+),", retry_times.REFUSED_RETRY_SECONDS),
    "the wait beyond the ceiling": (
        r"at most (\w+ \w+) beyond",
        SPANS[guard.GRACE_AFTER_CEILING_SECONDS],
    ),
    "the wait for a nomination": (
        r"waits for \w+,? \(?(\S+) s at most",
        nominated_pods.NOMINATION_WAIT_SECONDS,
    ),
    "how old a nomination may be": (
        r"nomination of up to (\w+ \w+) before",
        SPANS[int(nominated_pods._RECENT_SECONDS)],
    ),
    "when nominations count as unknown": (
        r"heard of them for (\S+) s\b",
        int(nominated_pods.MAX_SILENCE_SECONDS),
    ),
    "retries of a synchronous scheduler": (
        r"(\w+) times without a pause",
        IN_WORDS[refusal_history._MIN_IMMEDIATE_RETRIES + 1],
    ),
    "how often another replica is asked": (
        r"to ask (\w+) times before",
        IN_WORDS[refusal_history._MIN_IMMEDIATE_RETRIES + 1],
    ),
    "how many victims count as gone in a row": (
        r"limited: (\w+) answers for each victim",
        IN_WORDS[refusal_history._MAX_NOT_FOUND_IN_A_ROW],
    ),
    "when one more does": (r"one more every (\d+) seconds", retry_times.MIN_RETRY_SECONDS),
    "how long an inferred mode is used": (
        r"believed for (\w+ \w+),",
        SPANS[int(scheduler_mode._INFERENCE_TTL_SECONDS)],
    ),
    "how often a client comes back": (r"(\w+) times in all", IN_WORDS[TRIES]),
    "evictions a second": (
        r"more than (\d+) evictions a second",
        int(limits.CALLS_PER_SECOND),
    ),
    "evictions before the limit": (r"after the first (\w+)\)", IN_WORDS[limits.BURST_CALLS]),
    "evictions of all Namespaces": (
        r"or (\w+) times as many in all",
        IN_WORDS[reader._NAMESPACES_AT_FULL_RATE],
    ),
    "budgets that are read": (r"a namespace has more than (\d+)", disruption_budgets.MAX_BUDGETS),
    "how long a list of budgets may take": (
        r"cannot be read within (\S+) s\b",
        reader._LIST_TIMEOUT_SECONDS,
    ),
    "how large a list of budgets may be": (
        r"or (\d+) MiB of them",
        reader._MAX_BUDGET_LIST_BYTES // 1024**2,
    ),
    "how long a guard that hangs is waited for": (r"hang, after (\d+) seconds", WAITED_FOR),
    "how long the storms are watched": (
        r"calls in (\d+) s\b",
        int(scenarios.WATCHED_SECONDS),
    ),
}


@pytest.mark.parametrize(("pattern", "figure"), FIGURES.values(), ids=FIGURES)
def test_every_number_is_that_of_the_program(pattern: str, figure: object) -> None:
    assert set(re.findall(pattern, PAGE)) == {str(figure)}


def calls_a_second(*shares: int, is_postponed: bool = True) -> float:
    """Return how often a scheduler requests this many victims of a node.

    Each replica receives a share of the requests.
    """
    decision = GuardDecision(
        violation=Violation("spec", ViolationKind.FORBIDDEN, None, "no"), is_postponed=is_postponed
    )
    now = datetime(2026, 11, 21, tzinfo=UTC)
    rate = 0.0
    for seen in filter(None, shares):
        seconds = retry_times.retry_after(
            decision,
            RequestKind.PREEMPTION,
            is_asynchronous=True,
            waiting_victim_count=seen,
            now=now,
        )
        assert seconds is not None
        rate += seen * TRIES / ((TRIES - 1) * seconds)
    return rate


def figure(pattern: str) -> float:
    (found,) = set(re.findall(pattern, PAGE))
    return float(found)


def in_parts(victims: int, replicas: int) -> tuple[int, ...]:
    return tuple((victims + part) // replicas for part in range(replicas))


@pytest.mark.parametrize("is_postponed", [True, False], ids=["put off", "refused"])
def test_the_retry_rates_follow_from_these_numbers(*, is_postponed: bool) -> None:
    at_a_time = range(1, int(figure(r"deletes (\d+) of them at a time")) + 1)
    documented = figure(r"at most ([\d.]+) calls a second")
    alike = [
        calls_a_second(*in_parts(victims, replicas), is_postponed=is_postponed)
        for victims in at_a_time
        for replicas in (1, 2)
    ]
    assert math.ceil(10 * max(alike)) / 10 == documented
    of_three = max(
        calls_a_second(*in_parts(victims, 3), is_postponed=is_postponed) for victims in at_a_time
    )
    assert of_three <= 1.5 * documented
    unequal = [
        calls_a_second(part, victims - part, is_postponed=is_postponed)
        for victims in at_a_time
        for part in range(victims)
    ]
    assert max(unequal) <= 1
    most = int(figure(r"more than (\d+) at a time exceeds one"))
    assert (
        calls_a_second(most, is_postponed=is_postponed)
        <= 1
        < calls_a_second(most + 1, is_postponed=is_postponed)
    )


def test_the_rate_of_a_refusal_by_a_replica_that_sees_no_other_victim_follows_too() -> None:
    at_a_time = figure(r"deletes (\d+) of them at a time")
    calls = at_a_time + 1  # The refused one twice.
    assert calls / retry_times.REFUSED_RETRY_SECONDS == figure(r"up to ([\d.]+) calls a second")


def test_statements_about_other_projects_link_to_the_version_that_was_read() -> None:
    rows = re.findall(r"^\| (descheduler|Cluster Autoscaler) \|(.*)$", TEXT, re.MULTILINE)
    assert len(rows) == 2
    for who, row in rows:
        links = re.findall(
            r"\]\(https://github\.com/kubernetes(?:-sigs)?/[a-z-]+/blob/([^/]+)/", row
        )
        assert links, who
        assert all(re.fullmatch("[0-9a-f]{40}", commit) for commit in links), who


def test_the_page_for_admins_is_read_in_five_minutes() -> None:
    assert len(PAGES["guard.md"].replace("|", " ").split()) <= 900
