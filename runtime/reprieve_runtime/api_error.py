"""What a call to the API server may come to."""

from collections.abc import Sequence


class ApiError(Exception):
    """The API server said no: `status` and `reason` as in its `Status`; 0 where it could not be reached."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after_seconds: int | None = None,
        causes: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        self.causes = causes
        """Each a word of the API's and a sentence."""
