"""Watches the ConfigMap with the cluster's policy, and holds the policy in force for a program."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from reprieve_policy.config.effective import EffectivePolicy, decide_effective_policy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.objects import ObjectMeta

from .client.api import Api
from .client.paths import object_path
from .client.reflector import Key, Reflector

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMap:
    """The fields of a ConfigMap that are read."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    data: Mapping[str, str] | None = None


class PolicyConfigMap:
    """Watches the ConfigMap; `current` is always valid.

    `on_change` is called when the ConfigMap is created, changed or deleted.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        *,
        on_change: Callable[["PolicyConfigMap"], None] = lambda _: None,
    ) -> None:
        self.namespace, self.name = namespace, name
        self.effective = EffectivePolicy()
        self.uid = ""
        """The uid of the ConfigMap; empty if there is none."""
        self._on_change = on_change
        self.reflector: Reflector[ConfigMap, None] = Reflector(
            api,
            object_path("configmaps", namespace),
            ConfigMap,
            self._handle_update,
            on_delete=self._handle_delete,
            params={"fieldSelector": f"metadata.name={name}"},
        )

    @property
    def current(self) -> PolicySettings:
        """Return the policy in force."""
        return self.effective.settings

    def _handle_update(self, config_map: ConfigMap) -> None:
        self._apply(config_map.metadata.uid or "", config_map.data or {})

    def _handle_delete(self, _: Key) -> None:
        self._apply("", None)

    def _apply(self, uid: str, data: Mapping[str, str] | None) -> None:
        self.uid = uid
        self.effective = decide_effective_policy(self.effective, data)
        if self.effective.is_config_map_valid:
            _log.info("policy in force", extra={"policy": str(self.current)})
        else:
            extra = {"reasons": self.effective.error_message, "policy": str(self.current)}
            _log.error("policy cannot be read; the previous policy stays in force", extra=extra)
        self._on_change(self)
