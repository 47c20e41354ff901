"""The one exception whose text is meant for the user.

It is printed as it is, with exit status 1.
"""

from __future__ import annotations


class ClusterError(Exception):
    """Something is missing or failed.

    The message says what, and what would help, in one sentence.
    """
