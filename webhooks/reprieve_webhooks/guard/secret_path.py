"""The secret path of the guard, which is written into the webhook configuration beside the CA.

An API server does not authenticate to a webhook, and the guard's answers have effects. Without the
secret path, any client that reaches the port and knows the names of pods could have them evicted,
with the review of an eviction that never happened. The path is derived from the CA's key, which
only the webhooks can read, so that all replicas know it. It stands in their
ValidatingWebhookConfiguration, which admins can read. Until it does, and whenever `kubectl apply`
restores the path of the manifests, the guard gets no reviews.
"""

import hashlib
import hmac
from collections.abc import Callable, Sequence

from reprieve_certs.bundle import CA_KEY, NEXT_CA_KEY
from reprieve_certs.rotator import SecretStore, TrustAnchors
from reprieve_policy.kube.webhook_configurations import Webhook, WebhookConfiguration
from reprieve_runtime.client.api import JSON_PATCH, Api
from reprieve_runtime.client.paths import object_path

PATH = "/guard"
"""The path in the manifests; served only if another program manages the certificates and protects
the port."""
_MAX_PATHS = 4
"""Paths served at once: of this CA, of the next one, and of earlier ones, which an API server may
still use."""


class GuardPathAnchors:
    """`TrustAnchors` that write the guard's path into the webhook configuration first."""

    def __init__(
        self,
        anchors: TrustAnchors,
        store: SecretStore,
        api: Api,
        configuration: str,
        serve: Callable[[Sequence[str]], None],
    ) -> None:
        self._anchors, self._store, self._api, self._serve = anchors, store, api, serve
        self._configuration = object_path("validatingwebhookconfigurations", None, configuration)
        self._served: list[str] = []

    async def read(self) -> Sequence[bytes]:
        """Return the trusted certificates of every client, as PEM."""
        return await self._anchors.read()

    async def inject(self, trusted_pem: bytes) -> None:
        """Serve the path, write it into the configuration, and then write the CA."""
        data = (await self._store.read()).data
        paths = [path_of(data[key]) for key in (CA_KEY, NEXT_CA_KEY) if data.get(key)]
        self._served = list(dict.fromkeys([*paths, *self._served]))[:_MAX_PATHS]
        self._serve(self._served)
        if paths:
            await self._patch_configuration(paths[0])
        await self._anchors.inject(trusted_pem)

    async def _patch_configuration(self, path: str) -> None:
        configuration = await self._api.get(self._configuration, WebhookConfiguration)
        patch = [
            operation
            for index, webhook in enumerate(configuration.webhooks or ())
            for operation in _patch_operations(index, webhook, path)
        ]
        if patch:
            await self._api.patch(
                self._configuration, patch, WebhookConfiguration, content_type=JSON_PATCH
            )


def path_of(key_pem: bytes) -> str:
    """Return the path for a CA's key; it does not reveal the key."""
    return f"{PATH}/{hmac.digest(key_pem, b'reprieve guard', hashlib.sha256).hex()[:32]}"


def _patch_operations(index: int, webhook: Webhook, path: str) -> list[dict[str, str]]:
    """Return the operations that make one webhook call the guard at `path`.

    None if it does already, or if the webhook is not the guard.
    """
    base_path, config = f"/webhooks/{index}/clientConfig", webhook.clientConfig
    field_path, before = (
        (f"{base_path}/service/path", config.service.path)
        if config.service
        else (f"{base_path}/url", config.url)
    )
    base, is_guard, rest = before.partition(PATH)
    wanted = f"{base}{path}"
    if not is_guard or (rest and not rest.startswith("/")) or before == wanted:
        return []
    # The test refuses the whole patch if webhooks were added or removed since they were read.
    test = {"op": "test", "path": f"/webhooks/{index}/name", "value": webhook.name}
    return [test, {"op": "replace", "path": field_path, "value": wanted}]
