"""How long a victim waits for writes that its eviction can do without."""

from http import HTTPStatus

import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.retries import OptionalWriteDeadline
from reprieve_runtime.client.api import ApiError


def refused(status: int) -> ApiError:
    return ApiError(status, "Refused", "no")


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (refused(HTTPStatus.BAD_REQUEST), 0),
        (refused(HTTPStatus.UNPROCESSABLE_ENTITY), 0),
        (refused(HTTPStatus.FORBIDDEN), 3),
        (refused(HTTPStatus.INTERNAL_SERVER_ERROR), 60),
        (refused(HTTPStatus.TOO_MANY_REQUESTS), 60),
        # A webhook that does not answer: an operator without an API server leads no longer.
        (refused(0), 60),
    ],
    ids=lambda value: str(getattr(value, "status", value)),
)
def test_a_refused_write_is_given_up_after_a_time(error: ApiError, seconds: int) -> None:
    """An API server that was just started refuses calls for want of rights that it has not read.

    Without the three seconds, what a replacement inherits would be lost with each such start.
    """
    now = 100.0
    deadline = OptionalWriteDeadline(Clock(monotonic=lambda: now))
    assert deadline.has_passed(error) == (seconds == 0)
    now += seconds - 0.5
    assert deadline.has_passed(error) == (seconds == 0)
    now += 0.5
    assert deadline.has_passed(error)


def test_the_time_counts_in_which_an_unanswered_write_waited_for_others() -> None:
    deadline = OptionalWriteDeadline(Clock(monotonic=lambda: 100.0))
    assert not deadline.has_passed(refused(HTTPStatus.FORBIDDEN), begun_at=30.0)
    deadline.reset()
    assert not deadline.has_passed(refused(0), begun_at=41.0)
    deadline.reset()
    assert deadline.has_passed(refused(0), begun_at=40.0)


def test_a_write_that_succeeded_begins_anew() -> None:
    now = 100.0
    deadline = OptionalWriteDeadline(Clock(monotonic=lambda: now))
    assert not deadline.has_passed(refused(HTTPStatus.FORBIDDEN))
    deadline.reset()
    now += 3
    assert not deadline.has_passed(refused(HTTPStatus.FORBIDDEN))


FULL = "metadata.annotations: Too long: may not be more than 262144 bytes"


@pytest.mark.parametrize(
    ("status", "message", "is_too_large"),
    [
        (413, "Request entity too large: limit is 3145728", True),
        (422, f'Pod "a" is invalid: {FULL}', True),
        (422, f'Pod "a" is invalid: [spec: Forbidden, {FULL}]', True),
        (422, "ValidatingAdmissionPolicy 'labels' denied request: no", False),
        (500, "etcdserver: request is too large", True),
        (500, "trying to send message larger than max (3 vs. 2)", True),
        (500, "context deadline exceeded", False),
        (403, "no", False),
    ],
)
def test_only_the_api_servers_own_words_say_that_an_object_is_full(
    status: int, message: str, *, is_too_large: bool
) -> None:
    """Without this, a policy of another project would have victims deleted without notice."""
    assert ApiError(status, "Refused", message).is_object_too_large == is_too_large
