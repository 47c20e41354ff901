"""Reads `caBundle` of Reprieve's own webhook configurations, and updates it if it differs.

A watch reports what another client changed, so that it is put back at once. Without this, a wrong
`caBundle` would have the API server admit everything unchecked until the next periodic check.

Configurations are accessed by name only, so that RBAC can be limited to those names.
"""

import asyncio
import base64
from collections.abc import Callable, Sequence
from functools import partial

from reprieve_policy.kube.webhook_configurations import (
    Webhook,
    WebhookClientConfig,
    WebhookConfiguration,
)
from reprieve_runtime.client.api import JSON_PATCH, Api
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector

_KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


class WebhookConfigurations:
    """The `TrustAnchors` of one mutating and one validating configuration with the same name."""

    def __init__(self, api: Api, name: str) -> None:
        self._api = api
        self._paths = tuple(object_path(kind, None, name) for kind in _KINDS)

    async def read(self) -> Sequence[bytes]:
        """Return the `caBundle` of every webhook."""
        configurations = [await self._api.get(path, WebhookConfiguration) for path in self._paths]
        return [
            base64.b64decode(webhook.clientConfig.caBundle or "")
            for configuration in configurations
            for webhook in configuration.webhooks or ()
        ]

    async def inject(self, trusted_pem: bytes) -> None:
        """Set `caBundle` of every webhook to `trusted_pem`; writes only if one differs."""
        wanted = base64.b64encode(trusted_pem).decode()
        for path in self._paths:
            configuration = await self._api.get(path, WebhookConfiguration)
            patch = _patch(configuration.webhooks or (), wanted)
            if patch:
                await self._api.patch(path, patch, WebhookConfiguration, content_type=JSON_PATCH)


class ConfigurationWatch:
    """Watches how the API server calls the webhooks, in both configurations."""

    def __init__(self, api: Api, name: str, on_change: Callable[[], None]) -> None:
        """`on_change` is called for every change after the first list, also for an own one."""
        self._on_change = on_change
        self._seen: dict[str, tuple[WebhookClientConfig, ...]] = {}
        # RBAC allows a watch of one name to a client that selects the name.
        self._reflectors = tuple(
            Reflector(
                api,
                object_path(kind),
                WebhookConfiguration,
                partial(self._observe, kind),
                params={"fieldSelector": f"metadata.name={name}"},
            )
            for kind in _KINDS
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        await asyncio.gather(*(reflector.run() for reflector in self._reflectors))

    def _observe(self, kind: str, configuration: WebhookConfiguration) -> None:
        found = tuple(webhook.clientConfig for webhook in configuration.webhooks or ())
        before, self._seen[kind] = self._seen.get(kind), found
        if before not in (None, found):
            self._on_change()


def _patch(webhooks: Sequence[Webhook], wanted: str) -> list[dict[str, str]]:
    operations = []
    for index, webhook in enumerate(webhooks):
        if webhook.clientConfig.caBundle != wanted:
            # The test fails the whole patch if webhooks were added or removed since the read.
            operations.append(
                {"op": "test", "path": f"/webhooks/{index}/name", "value": webhook.name}
            )
            operations.append(
                {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": wanted}
            )
    return operations
