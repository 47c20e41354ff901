"""What one review costs `reprieve-webhooks`: of each size, from the first byte to the last.

The program is the real one, with TLS and all rules. A pod may be the first of its template, or one
more of a template that the program has seen: then only its name and its uids are new.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from functools import partial
from itertools import count

from bench import contenders, reviews
from reprieve_policy.keys import CHECKPOINT_TIMEOUT

from . import counting, webhooks_process
from .counting import CallCounter
from .tls_client import TlsClient

SIZES = {"small": 0, "4 KB": 4096, "30 KB": 30720}
"""0 stands for the smallest pod that there is."""
PATHS = {"mutating": "/mutate", "validating": "/validate"}
_CLASS = "4"
_WARM_UP, _REVIEWS = 5, 9
_LEAST_SECONDS = 100
"""Of a timeout for checkpoints. 500 times from here on are within every policy."""
_NUMBERS = count()


def measure() -> dict[str, float]:
    """Return the figures."""
    return webhooks_process.run(contenders.objects(), _measure)


def _measure(client: TlsClient, counter: CallCounter) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, size in SIZES.items():
        for kind, path in PATHS.items():
            for template, bodies in _bodies(size).items():
                what = f"review of {name}, {kind}, {template}"
                found |= _of_reviews(what, client, counter, path, bodies)
    return found


def _of_reviews(
    what: str, client: TlsClient, counter: CallCounter, path: str, bodies: Iterator[bytes]
) -> dict[str, float]:
    send = partial(_send, client, path, bodies)
    for _ in range(_WARM_UP):
        send()
    costs = counting.costs(counter, lambda: counter.calls, [send] * _REVIEWS)
    return counting.figures(what, costs)


def _send(client: TlsClient, path: str, bodies: Iterator[bytes]) -> None:
    answer = json.loads(client.post(path, next(bodies)))
    if not answer["response"]["allowed"]:
        raise ValueError(f"{path} refused the review: {answer}")


def _bodies(size: int) -> dict[str, Iterator[bytes]]:
    body = reviews.build_body(size or reviews.smallest_size(_CLASS), 0, _CLASS)
    return {
        "first of its template": (_pod(body, next(_NUMBERS), is_first=True) for _ in count()),
        "known template": (_pod(body, next(_NUMBERS), is_first=False) for _ in count()),
    }


def _pod(body: bytes, number: int, *, is_first: bool) -> bytes:
    """Return the review with another pod, of a template that rules tell from all others or not."""
    document = json.loads(body)
    request = document["request"]
    metadata = request["object"]["metadata"]
    request["uid"], metadata["uid"] = (str(uuid.UUID(int=2 * number + n)) for n in range(2))
    request["name"] = metadata["name"] = f"train-00-{number:05}"
    if is_first:
        metadata["annotations"][CHECKPOINT_TIMEOUT] = f"{_LEAST_SECONDS + number % 500}s"
    return json.dumps(document, separators=(",", ":")).encode()
