"""The admin's policy, as the operator uses it.

A metric and an Event on the ConfigMap show whether it can be read.
"""

from collections.abc import Callable

from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy.config.settings import PolicySettings
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.reflector import Reflector
from reprieve_runtime.policy_config_map import ConfigMap, PolicyConfigMap

from .event_recorder import EventRecorder, ObjectReference

CONFIG_MAP = "reprieve-policy"


class PolicySource:
    """Watches the ConfigMap on every replica; only the leader reports on it."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        recorder: EventRecorder,
        metrics: OperatorMetrics,
        is_leading: Callable[[], bool],
    ) -> None:
        self._recorder = recorder
        self._metrics = metrics
        self._is_leading = is_leading
        self._map = PolicyConfigMap(api, namespace, CONFIG_MAP, on_change=lambda _: self.report())

    @property
    def reflector(self) -> Reflector[ConfigMap, None]:
        """The watch, which the caller runs."""
        return self._map.reflector

    @property
    def current(self) -> PolicySettings:
        """Return the policy in force; the defaults if there is no ConfigMap."""
        return self._map.current

    def report(self) -> None:
        """Report whether the policy can be read: at each change, and at the start of a term."""
        effective = self._map.effective
        self._metrics.policy_is_good.set(effective.is_config_map_valid)
        if not effective.is_config_map_valid and self._is_leading():
            self.record_warning(
                "PolicyUnreadable",
                f"the last valid policy stays in force: {effective.error_message}",
            )

    def record_warning(self, reason: str, note: str) -> None:
        """Report, by one Event on the ConfigMap, what of it has no effect."""
        about = ObjectReference("ConfigMap", self._map.namespace, self._map.name, self._map.uid)
        self._recorder.event(about, reason, note, once=True)
