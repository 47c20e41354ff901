"""The policies as the operator uses them: the admin's, in a ConfigMap, and those of Namespaces."""

from collections.abc import Callable, Collection
from typing import NamedTuple

from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy.config import namespace
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.objects import annotations_of, labels_of
from reprieve_runtime.client.api import Api, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector
from reprieve_runtime.policy_config_map import ConfigMap, PolicyConfigMap

from .event_recorder import EventRecorder, ObjectReference

CONFIG_MAP = "reprieve-policy"


class PolicySource:
    """Watches the ConfigMap on every replica; only the leader reports on it.

    A metric and an Event on the ConfigMap show whether it can be read.
    """

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


class NamespacePolicies:
    """Watches the metadata of Namespaces during one term.

    Their policies also bound labels on pods that were admitted while no webhook ran. In one that is
    terminating, no pod is held.
    """

    def __init__(self, api: Api) -> None:
        self.reflector = Reflector(
            api, object_path("namespaces"), PartialObjectMetadata, self._read
        )
        self.on_terminating: Callable[[str], None] = lambda _: None
        """Called with the name of a Namespace that is terminating."""

    def names(self) -> Collection[str]:
        """Return the names of all Namespaces."""
        return {name for _, name in self.reflector.items}

    def get(self, name: str | None) -> NamespacePolicy:
        """Return a Namespace's policy; the default for one that is not known."""
        return self._state_of(name).policy

    def is_terminating(self, name: str | None) -> bool:
        """True if the Namespace is being deleted."""
        return self._state_of(name).is_terminating

    def _state_of(self, name: str | None) -> "_NamespaceState":
        return self.reflector.items.get(("", name or ""), _UNKNOWN)

    def _read(self, namespace_object: PartialObjectMetadata) -> "_NamespaceState":
        metadata = namespace_object.metadata
        is_terminating = metadata.deletionTimestamp is not None
        if is_terminating:
            self.on_terminating(metadata.name or "")
        policy = namespace.read_leniently(labels_of(metadata), annotations_of(metadata))
        return _NamespaceState(policy, is_terminating)


class _NamespaceState(NamedTuple):
    policy: NamespacePolicy
    is_terminating: bool


_UNKNOWN = _NamespaceState(NamespacePolicy(), is_terminating=False)
