"""The admin's policy as the operator uses it: what is in force, shown as a metric, and an Event on one that cannot be read."""

from collections.abc import Callable

from reprieve_operator.metrics import Metrics
from reprieve_policy.config.settings import PolicySettings
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.reflector import Reflector
from reprieve_runtime.policy_map import ConfigMap, PolicyMap

from .event_recorder import Announcer, Regarding

CONFIG_MAP = "reprieve-policy"


class PolicySource:
    """Watches the ConfigMap; every replica does, and the leader tells."""

    def __init__(
        self, api: Api, namespace: str, announcer: Announcer, metrics: Metrics, is_leading: Callable[[], bool]
    ) -> None:
        self._announcer = announcer
        self._metrics = metrics
        self._is_leading = is_leading
        self._map = PolicyMap(api, namespace, CONFIG_MAP, on_change=lambda _: self.show())

    @property
    def reflector(self) -> Reflector[ConfigMap, None]:
        """The watch, to be run and waited for."""
        return self._map.reflector

    @property
    def current(self) -> PolicySettings:
        """Return the policy that holds now: the defaults where there is no ConfigMap."""
        return self._map.current

    def show(self) -> None:
        """Say how the policy is: at each change, and once at the start of a term."""
        held = self._map.in_force
        self._metrics.policy_is_good.set(held.is_as_written)
        if not held.is_as_written and self._is_leading():
            self.complain("PolicyUnreadable", f"what was in force stays in force: {held.complaint}")

    def complain(self, reason: str, note: str) -> None:
        """Tell once, by an Event on the ConfigMap, what it wants in vain."""
        about = Regarding("ConfigMap", self._map.namespace, self._map.name, self._map.uid)
        self._announcer.announce(about, reason, note, once=True)
