"""The admin's policy as it is now: the ConfigMap `reprieve-policy`, or the last good one where that cannot be read."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from reprieve_policy import settings as policy
from reprieve_policy.objects import ObjectMeta
from reprieve_policy.settings import PolicySettings
from reprieve_policy.verdict import Violation
from reprieve_runtime.api import Api
from reprieve_runtime.paths import object_path
from reprieve_runtime.reflector import Reflector

from .announce import Announcer, Regarding
from .metrics import Metrics

_log = logging.getLogger(__name__)

CONFIG_MAP = "reprieve-policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMap:
    """The part of one that is read."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    data: Mapping[str, str] | None = None


class PolicySource:
    """Watches the ConfigMap; `current` is always usable."""

    def __init__(self, api: Api, namespace: str, announcer: Announcer, metrics: Metrics) -> None:
        self._namespace = namespace
        self._announcer = announcer
        self._metrics = metrics
        self._good = PolicySettings()
        self.reflector: Reflector[ConfigMap, None] = Reflector(
            api,
            object_path("configmaps", namespace),
            ConfigMap,
            self._take,
            params={"fieldSelector": f"metadata.name={CONFIG_MAP}"},
        )

    @property
    def current(self) -> PolicySettings:
        """Return the policy that holds now: the defaults where there is no ConfigMap."""
        is_missing = self.reflector.is_synced and (self._namespace, CONFIG_MAP) not in self.reflector.items
        return PolicySettings() if is_missing else self._good

    def _take(self, found: ConfigMap) -> None:
        parsed = policy.parse(found.data or {})
        self._metrics.policy_is_good.set(isinstance(parsed, PolicySettings))
        if isinstance(parsed, PolicySettings):
            self._good = parsed
            _log.info("policy read", extra={"policy": str(parsed)})
            return
        reasons = "; ".join(_sentence(violation) for violation in parsed)
        _log.error("policy cannot be read, the last good one holds", extra={"reasons": reasons})
        about = Regarding("ConfigMap", self._namespace, CONFIG_MAP, found.metadata.uid or "")
        self._announcer.announce(about, "PolicyUnreadable", f"the last good policy holds: {reasons}")


def _sentence(violation: Violation) -> str:
    return f"{violation.path}: {violation.detail}"
