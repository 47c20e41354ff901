"""A document or file that cannot be read, and why, in one clause."""


class Unreadable(Exception):  # noqa: N818 - it says what is the case, as `click.Abort` does
    """`line` is where, counted from 0 within the document."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
