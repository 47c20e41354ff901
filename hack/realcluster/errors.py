"""The one exception that a user is meant to read: the launcher prints its text as a sentence and exits with status 1."""

from __future__ import annotations


class ClusterError(Exception):
    """Something is missing or failed; the message says what, and what would help, in one sentence."""
