"""How much memory a review takes once it is decoded: an upper bound, from its bytes alone.

What rules do not read is counted too, and so is what stands in texts: to tell these apart would
take as long as to decode the review.
"""

UNCOUNTED_BYTES = 4 * 1024
"""A body up to this size decodes to less than `SMALL_BYTES`, or a little more."""
SMALL_BYTES = 128 * 1024
"""What a review may decode to without a place of its own. A pod of 15 KB takes 60 KB."""
_UNSEARCHED_BYTES = 8 * 1024 * 1024
"""A larger body counts as one with the most: to search it would take as long as ten reviews."""
_COMMA_BYTES, _LIST_BYTES, _OBJECT_BYTES = 130, 100, 240
"""Of each comma: a short label takes 142 bytes with its texts. Of each `[`: a list with one entry
takes 88. Of each `{`: a table with one entry takes 232, a template with its spec 440 for two."""
_WIDEST_CHARACTER = 4
"""A text with one character beyond the first 65,536 takes as much for each of its characters."""


def most_bytes(body: bytes) -> int:
    """Return what a body decodes to at most; 0 where that is little enough to be left out."""
    if len(body) <= UNCOUNTED_BYTES:
        return 0
    if len(body) > _UNSEARCHED_BYTES:
        return _WIDEST_CHARACTER * len(body)
    values = (
        _COMMA_BYTES * body.count(b",")
        + _LIST_BYTES * body.count(b"[")
        + _OBJECT_BYTES * body.count(b"{")
    )
    most = values + _WIDEST_CHARACTER * len(body)
    if most > SMALL_BYTES and not _may_be_wide(body):
        most = values + len(body)
    return most if most > SMALL_BYTES else 0


def _may_be_wide(body: bytes) -> bool:
    return not body.isascii() or b"\\u" in body
