"""The one exception that a user is meant to read: its text is printed as it is, and the exit status is 1."""

from __future__ import annotations


class ClusterError(Exception):
    """Something is missing or failed; the message says what, and what would help, in one sentence."""
