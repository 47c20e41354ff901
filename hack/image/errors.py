"""The one exception whose text is meant for the user: it is printed as it is."""

from __future__ import annotations


class ImageError(Exception):
    """Something is missing or failed. The message says what, and what would help."""
