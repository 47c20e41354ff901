"""Reads `caBundle` of Reprieve's own webhook configurations, and updates it if it differs.

Configurations are accessed by name only, so that RBAC can be limited to those names.
"""

import base64
from collections.abc import Sequence

from reprieve_policy.kube.webhook_configurations import Webhook, WebhookConfiguration
from reprieve_runtime.client.api import JSON_PATCH, Api
from reprieve_runtime.client.paths import object_path


class WebhookConfigurations:
    """The `TrustAnchors` of one mutating and one validating configuration with the same name."""

    def __init__(self, api: Api, name: str) -> None:
        self._api = api
        kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        self._paths = tuple(object_path(kind, None, name) for kind in kinds)

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
