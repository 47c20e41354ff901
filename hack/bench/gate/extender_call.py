"""What one call of a scheduler costs `reprieve-webhooks`.

Calls of functions are those of the threads that decode and decide: meanwhile, the main thread looks
from time to time whether the scheduler has hung up, on a slow machine more often.
"""

from __future__ import annotations

import json
import statistics
from functools import partial
from itertools import count

from bench import extender, stub_api
from reprieve_webhooks.extender.route import PATH

from . import counting, webhooks_process
from .counting import CallCounter
from .tls_client import TlsClient

_NODES, _PODS = 100, 10
_WARM_UP, _CALLS = 2, 6
_FLAGS = ("--extender=true", "--extender-schedulers=", "--extender-timeout-seconds=3600")


def measure() -> dict[str, float]:
    """Return the figures."""
    cluster = extender.collections(_NODES, _PODS, _WARM_UP + 2 * _CALLS)
    return webhooks_process.run(cluster, partial(_measure, cluster), *_FLAGS)


def _measure(
    cluster: stub_api.Collections, client: TlsClient, counter: CallCounter
) -> dict[str, float]:
    # Whole pods come in many pieces, and the moment decides in how many.
    body = extender.call(cluster, _PODS, whole=False)
    call, what = partial(_call, client, body, count()), f"call of the extender, {_NODES} nodes"
    for _ in range(_WARM_UP):
        call()
    costs = counting.costs(counter, lambda: counter.pool_calls, [call] * _CALLS)
    return {
        # A call looks at more nodes than the one before it, or at less.
        **counting.figures(what, costs, statistics.mean),
        f"{what}: peak memory [B]": counting.median_peak_bytes(counter, [call] * _CALLS),
    }


def _call(client: TlsClient, body: bytes, numbers: count[int]) -> None:
    """Ask about a pod that was not asked about: a second call would be told to wait."""
    asked = extender.about(body, next(numbers))
    answer = json.loads(client.post(PATH, asked))
    if len(answer["NodeNameToMetaVictims"]) != 1:
        raise ValueError(f"no node was chosen: {answer}")
