"""The errors of the API server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

ANSWER_TOO_LARGE = "TooLarge"
"""The reason where the answer has more bytes than the caller reads."""
_UNREADABLE = "Unreadable"
"""The reason where the answer is no object of the type that was asked for."""
_TOO_LARGE_MESSAGES: Mapping[int, Sequence[str]] = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ("",),
    HTTPStatus.UNPROCESSABLE_ENTITY: ("metadata.annotations: Too long",),
    HTTPStatus.INTERNAL_SERVER_ERROR: ("request is too large", "message larger than max"),
}
"""By status, of which the message has one. 422 is also the answer of a ValidatingAdmissionPolicy of
another project. The words of a 500 are those of etcd and of its client, of 1.5 MiB."""
_UNDECIDED_MESSAGES = ("etcdserver: request timed out", "etcdserver: leader changed")
"""Of a 500, by etcd: the write may have been carried out."""
_ADMISSION_MESSAGES = ("ValidatingAdmissionPolicy", "admission webhook")
"""Of a 422: a policy or a webhook of the cluster has refused the object."""


class ApiError(Exception):
    """An error answer: `status` and `reason` as in its `Status`.

    0 if there is no answer, or none that can be used.
    """

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
        """The reason and the message of each cause."""

    @property
    def is_unreachable(self) -> bool:
        """The API server did not answer, or with nothing that can be used."""
        return self.status == 0

    @property
    def is_unreadable(self) -> bool:
        """Something answered, such as a proxy with a page of its own, which cannot be read."""
        return self.reason == _UNREADABLE

    @property
    def is_unanswered(self) -> bool:
        """The call may have been carried out, or be carried out later."""
        if self.status == HTTPStatus.INTERNAL_SERVER_ERROR:
            return any(words in self.message for words in _UNDECIDED_MESSAGES)
        return self.is_unreachable or self.status == HTTPStatus.GATEWAY_TIMEOUT

    @property
    def is_answer_too_large(self) -> bool:
        """The answer has more bytes than the caller reads."""
        return self.is_unreachable and self.reason == ANSWER_TOO_LARGE

    @property
    def is_object_too_large(self) -> bool:
        """The object is full: 262,144 bytes of annotations, or the limit of etcd."""
        return any(words in self.message for words in _TOO_LARGE_MESSAGES.get(self.status, ()))

    @property
    def is_invalid_object(self) -> bool:
        """The API server itself rejects such an object, not a policy or a webhook."""
        return self.status == HTTPStatus.UNPROCESSABLE_ENTITY and not any(
            words in self.message for words in _ADMISSION_MESSAGES
        )

    @property
    def is_not_found(self) -> bool:
        """The object does not exist (404)."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def is_conflict(self) -> bool:
        """The object has changed since it was read, or already exists (409)."""
        return self.status == HTTPStatus.CONFLICT

    @property
    def is_gone_or_changed(self) -> bool:
        """The object does not exist, or has changed since it was read: a watch shows its state."""
        return self.is_not_found or self.is_conflict

    @property
    def is_forbidden(self) -> bool:
        """The caller lacks the permission (403)."""
        return self.status == HTTPStatus.FORBIDDEN


def unreadable_error(error: Exception) -> ApiError:
    """Return the error of an answer, or of a stored object, that could not be decoded."""
    return ApiError(0, _UNREADABLE, str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusCause:
    """One cause of an error."""

    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusDetails:
    """The details of an error."""

    causes: Sequence[StatusCause] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The API's `Status`: the body of an error, and the result of a command."""

    status: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: StatusDetails | None = None

    @property
    def causes(self) -> Sequence[StatusCause]:
        """All causes; usually none."""
        return (self.details and self.details.causes) or ()


def error_from_status(
    status: Status, code: int, retry_after_seconds: int | None = None
) -> ApiError:
    """Return the error for a `Status` that was received with this HTTP status code."""
    causes = [(cause.reason, cause.message) for cause in status.causes]
    return ApiError(code, status.reason, status.message, retry_after_seconds, causes)
