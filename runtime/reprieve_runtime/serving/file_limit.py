"""The limit of open files: raised to what the system allows, as Go programs do by themselves."""

import logging
import resource

_LOG = logging.getLogger(__name__)
_ENOUGH = 1024
"""Each program bounds what it serves and what it calls: together below this."""


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit, and log both."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    extra = {"before": soft, "now": hard}
    if hard != resource.RLIM_INFINITY and hard < _ENOUGH:
        _LOG.warning("the limit of open files is low: calls may fail", extra=extra)
    else:
        _LOG.info("limit of open files", extra=extra)
