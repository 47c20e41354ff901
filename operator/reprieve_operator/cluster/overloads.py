"""Tells an overloaded API server from a webhook that refuses as one does, for one of many objects.

A webhook that denies a request chooses the status of its answer, also 429 or 503.
"""

from reprieve_runtime.client.api import ApiError

from .retries import is_overload

_MANY = 3
"""So many Namespaces in a row are hardly those of one webhook. Each further object would only add
to the load."""


class Overloads:
    """The refusals of one round over all objects, of a controller that repeats a round that ended.

    A Namespace that is refused again and again counts once: until a whole round refuses it no more.
    Without this, a tenant with so many Namespaces in a row would end each round at these.
    """

    def __init__(self) -> None:
        self._in_a_row: set[str] = set()
        self._refused: set[str] = set()
        """Namespaces that were refused since the last complete round."""
        self._refused_before: set[str] = set()
        """Those between the two complete rounds before."""
        self._last: ApiError | None = None

    def begin_round(self) -> None:
        """Begin a round, also after one that ended early."""
        self._in_a_row.clear()

    def note_refusal(self, namespace: str, error: ApiError) -> None:
        """Note that a call about an object of the Namespace was refused.

        A call without an answer says nothing: a webhook may hang, or the API server be away.
        """
        if error.is_unanswered:
            return
        if not is_overload(error):
            self._in_a_row.clear()
            return
        self._last = error
        if not (namespace in self._refused or namespace in self._refused_before):
            self._in_a_row.add(namespace)
        self._refused.add(namespace)

    def note_success(self) -> None:
        """Note that a call succeeded."""
        self._in_a_row.clear()

    def raise_if_many(self) -> None:
        """Raise the last refusal if several Namespaces in a row were refused."""
        if self._last is not None and len(self._in_a_row) >= _MANY:
            raise self._last

    def end_round(self) -> None:
        """Note that a round is complete."""
        self._refused_before, self._refused = self._refused, set()
