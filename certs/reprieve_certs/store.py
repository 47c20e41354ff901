"""The Secret with the certificates.

It must exist: RBAC can limit `get` and `patch` to one name, but not `create`.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

from reprieve_policy.kube.objects import VersionedMeta
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path

from . import bundle
from .rotator import StoredSecret, WriteConflict


@dataclass(frozen=True, slots=True, kw_only=True)
class _Secret:
    metadata: VersionedMeta
    data: Mapping[str, str] | None = None


class MissingSecret(LookupError):  # noqa: N818 - a state of the cluster
    """The Secret does not exist; the base manifests contain an empty one."""


class KubernetesSecretStore:
    """A `SecretStore` in the API server.

    It writes only the keys of a bundle, with the version that it read as a precondition.
    """

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api = api
        self._path = object_path("secrets", namespace, name)
        self._display_name = f"{namespace}/{name}"

    async def read(self) -> StoredSecret:
        """Return the bundle's keys; `MissingSecret` if the manifests are not applied."""
        try:
            return _to_stored_secret(await self._api.get(self._path, _Secret))
        except ApiError as error:
            if error.is_not_found:
                raise MissingSecret(
                    f"Secret {self._display_name} not found: apply the manifests"
                ) from error
            raise

    async def write(self, data: Mapping[str, bytes], version: str) -> StoredSecret:
        """Replace the bundle's keys; `WriteConflict` if another replica was first."""
        texts = {
            key: base64.b64encode(data[key]).decode() if key in data else None
            for key in bundle.KEYS
        }
        body = {"metadata": {"resourceVersion": version}, "data": texts}
        try:
            return _to_stored_secret(await self._api.patch(self._path, body, _Secret))
        except ApiError as error:
            if error.is_conflict:
                raise WriteConflict from error
            raise


def _to_stored_secret(secret: _Secret) -> StoredSecret:
    data = {key: _decode(text) for key, text in (secret.data or {}).items() if key in bundle.KEYS}
    return StoredSecret(data, secret.metadata.resourceVersion)


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""
