"""The watch of victims: kopf in a thread and event loop of its own, with one thin handler.

kopf ends by cancelling every task of its loop that began after it; in our own loop these would be the keepers. Only
`on.event` is used: kopf's other handlers write their own finalizers and annotations on pods.
"""

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import kopf
import msgspec

from reprieve_policy import keys
from reprieve_runtime.login import connection_configuration

from .pods import Pod
from .settings import OperatorSettings

_log = logging.getLogger(__name__)

_STOP_SECONDS = 8.0
OnEvent = Callable[[str | None, Pod], None]


class PodWatch:
    """Streams the pods that carry our label, and nothing else."""

    def __init__(self, settings: OperatorSettings, on_event: OnEvent) -> None:
        self._settings = settings
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._events: deque[tuple[str | None, Pod]] = deque()
        self._is_woken = False
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    async def wait_ended(self) -> None:
        """Wait until kopf has ended, on its own or because it was stopped."""
        await self._ended.wait()

    async def stop(self) -> None:
        """Stop watching; a thread that does not end in time dies with the process."""
        self._stop.set()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._ended.wait()
        except TimeoutError:
            _log.warning("kopf did not end in time")

    def _run(self) -> None:
        # It warns that signals are not its business here, which they are not meant to be.
        logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
        try:
            kopf.run(
                # Without this, kopf asks for the user's name, and ends where the uid has none: in most images.
                identity=cast("Any", self._settings.holder),
                registry=self._registry(),
                settings=_kopf_settings(),
                standalone=True,
                clusterwide=True,
                stop_flag=self._stop,
            )
        except Exception as error:  # noqa: BLE001 - whatever ended it, the term begins a new one
            _log.warning("watch ended", extra={"error": f"{type(error).__name__}: {error}"})
        finally:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._ended.set)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def log_in(**_: Any) -> kopf.ConnectionInfo:
            return await _connection(self._settings)

        @kopf.on.event("", "v1", "pods", registry=registry)
        async def on_pod(event: Any, **_: Any) -> None:
            self._hand_over(event["type"], event["object"])

        return registry

    def _hand_over(self, event_type: str | None, document: Any) -> None:
        try:
            pod = msgspec.convert(document, Pod)
        except msgspec.ValidationError as error:
            _log.warning("unreadable pod", extra={"error": str(error)})
            return
        self._events.append((event_type, pod))
        # One wake-up for all that came meanwhile: each costs both threads a system call and the interpreter's lock.
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._is_woken = False
        while self._events:
            self._on_event(*self._events.popleft())


class _NoDiffs(kopf.DiffBaseStorage):
    """Without this, kopf makes a deep copy of each pod at each event, to compare it with what it never stored."""

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:  # noqa: ARG002 - kopf's interface
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:  # noqa: ARG002 - kopf's interface
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        pass


def _kopf_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.watching.label_selectors["", "v1", "pods"] = keys.SOFT_EVICTION
    settings.watching.chunk_size = 500
    settings.posting.enabled = False
    settings.persistence.diffbase_storage = _NoDiffs()
    # Nothing is kept of handlers' progress either: without this, kopf looks for it in each event.
    settings.persistence.progress_storage = kopf.MultiProgressStorage([])
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = None
    settings.networking.request_timeout = 60
    return settings


async def _connection(settings: OperatorSettings) -> kopf.ConnectionInfo:
    """Return the same credentials as all other calls use; asked again whenever the API server refuses them."""
    configuration = await connection_configuration(settings.kubeconfig)
    found = configuration.get_api_key_with_prefix("BearerToken")
    header = (await found if inspect.isawaitable(found) else found) or ""
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        token=header.removeprefix("Bearer ") or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        proxy_url=configuration.proxy,
    )
