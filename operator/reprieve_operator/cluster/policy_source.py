"""The admin's policy as the operator uses it: what is in force, shown as a metric, and an Event on one that cannot be read."""

from collections.abc import Callable

from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy.config.settings import PolicySettings
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.reflector import Reflector
from reprieve_runtime.policy_config_map import ConfigMap, PolicyConfigMap

from .event_recorder import EventRecorder, ObjectReference

CONFIG_MAP = "reprieve-policy"


class PolicySource:
    """Watches the ConfigMap; every replica does, and the leader tells."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        announcer: EventRecorder,
        metrics: OperatorMetrics,
        is_leading: Callable[[], bool],
    ) -> None:
        self._announcer = announcer
        self._metrics = metrics
        self._is_leading = is_leading
        self._map = PolicyConfigMap(api, namespace, CONFIG_MAP, on_change=lambda _: self.report())

    @property
    def reflector(self) -> Reflector[ConfigMap, None]:
        """The watch, to be run and waited for."""
        return self._map.reflector

    @property
    def current(self) -> PolicySettings:
        """Return the policy that holds now: the defaults where there is no ConfigMap."""
        return self._map.current

    def report(self) -> None:
        """Say how the policy is: at each change, and once at the start of a term."""
        held = self._map.effective
        self._metrics.policy_is_good.set(held.is_config_map_valid)
        if not held.is_config_map_valid and self._is_leading():
            self.record_warning(
                "PolicyUnreadable", f"what was in force stays in force: {held.error_message}"
            )

    def record_warning(self, reason: str, note: str) -> None:
        """Tell once, by an Event on the ConfigMap, what it wants in vain."""
        about = ObjectReference("ConfigMap", self._map.namespace, self._map.name, self._map.uid)
        self._announcer.event(about, reason, note, once=True)
