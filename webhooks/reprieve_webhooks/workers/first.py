"""The first worker, as a further worker knows it."""

from collections.abc import Sequence

from .channel import Channel
from .further import ANSWER_SECONDS

_NAME = "worker 1"
_SECONDS = ANSWER_SECONDS + 0.3
"""It asks the others before it answers; a kubelet waits for a second."""


class FirstWorker:
    """Answers for all workers of the program."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def missing(self) -> Sequence[str]:
        """Return what is missing until all answer reviews correctly."""
        return await self._ask("missing")

    async def silent(self) -> Sequence[str]:
        """Return the names of those that run and do not answer."""
        return await self._ask("silent")

    async def _ask(self, question: str) -> Sequence[str]:
        try:
            found: Sequence[str] = await self._channel.ask(question, timeout_seconds=_SECONDS)
        except OSError:
            return (_NAME,)
        return found
