"""How often reviews may call the API server for what no watch has.

Any client that reaches the port can send reviews of Namespaces and users that do not exist. Without
the limit, each such review would cost a call, and the webhook would be a way to load the API
server.
"""

from reprieve_runtime.rate_limit import Rate, RateLimits

CALLS_PER_SECOND = 50.0
BURST_CALLS = 100
"""A hundred new Namespaces at once, whose first pods come before their watch events; normally one.
"""
MAX_OBJECT_BYTES = 512 * 1024
"""Of an object that a review can do without: the owner of a pod, or an object of its gang. A
hundred reviews may read at once, and an object may have 1.5 MB."""
DEFAULT_LIMITS = RateLimits(Rate(CALLS_PER_SECOND, BURST_CALLS))
FAIR_LIMITS = RateLimits(
    DEFAULT_LIMITS.total, per_namespace=Rate(CALLS_PER_SECOND / 2, BURST_CALLS // 2)
)
"""Without a share for each namespace, a user whose pods name many gangs would have the pods of
other namespaces get nothing from theirs."""
