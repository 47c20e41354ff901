"""The facts by which the cached pods are classified, and which of them no longer hold."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.limits.quota import Quotas
from reprieve_policy.kube.objects import Resource


class _PolicyInputs(NamedTuple):
    """What all pods are classified by, besides the policy of their Namespace."""

    settings: PolicySettings
    priority_classes: Mapping[str, Resource]


class NamespaceFacts:
    """The facts of each Namespace with pods, as of their classification."""

    def __init__(
        self, facts_of: Callable[[str], Facts], policy_version: Callable[[], object]
    ) -> None:
        """`policy_version` differs after each change of a Namespace, a PriorityClass or the policy.

        Without it, each call of a scheduler would compare the facts of all Namespaces.
        """
        self._facts_of, self._policy_version = facts_of, policy_version
        self._compared_version: object = None
        self._policy_inputs: _PolicyInputs | None = None
        self._facts: dict[str, Facts] = {}
        self._relabelled: set[str] = set()
        """The Namespaces of which only labels have changed that are no part of their policy."""
        self._pods_per_namespace: Counter[str] = Counter()
        """Without it, the facts of deleted Namespaces would be kept, and compared, for ever."""

    @property
    def settings(self) -> PolicySettings:
        """The cluster's policy now."""
        return self._facts_of("").settings

    @property
    def quotas(self) -> Quotas:
        """The cluster's quotas now."""
        return self._facts_of("").quotas

    def add_pod(self, namespace: str) -> None:
        """Count a pod of a Namespace."""
        self._pods_per_namespace[namespace] += 1

    def remove_pod(self, namespace: str) -> None:
        """Forget the facts of a Namespace with its last pod."""
        self._pods_per_namespace[namespace] -= 1
        if not self._pods_per_namespace[namespace]:
            del self._pods_per_namespace[namespace]
            self._facts.pop(namespace, None)
            self._relabelled.discard(namespace)

    def get(self, namespace: str) -> Facts:
        """Return the facts by which pods of a Namespace are classified."""
        facts = self._facts.get(namespace)
        if facts is None:
            facts = self._facts[namespace] = self._facts_of(namespace)
            self._policy_inputs = self._policy_inputs or _policy_inputs_of(facts)
        return facts

    def drop_changed(self) -> set[str]:
        """Drop facts that no longer hold; return their Namespaces.

        Not those of a Namespace of which only labels have changed: see `take_relabelled`.
        """
        version = self._policy_version()
        if version == self._compared_version:
            return set()
        self._compared_version = version
        inputs = _policy_inputs_of(self._facts_of(""))
        changed = self._compare_policies()
        if inputs != self._policy_inputs:
            self._policy_inputs, changed = inputs, set(self._facts)
        for name in changed:
            del self._facts[name]
        return changed

    def take_relabelled(self) -> set[str]:
        """Return the Namespaces whose labels have changed since the last call.

        Tenants may change most labels of a Namespace, and only a preemptor is judged by them.
        """
        relabelled, self._relabelled = self._relabelled, set()
        return relabelled

    def _compare_policies(self) -> set[str]:
        """Return the Namespaces whose policy has changed; take up labels that have changed."""
        changed = set()
        for name, facts in list(self._facts.items()):
            before, now = facts.namespace, self._facts_of(name)
            if now.namespace == before:
                continue
            if _without_labels(now.namespace) != _without_labels(before):
                changed.add(name)
            else:
                self._facts[name] = now
                self._relabelled.add(name)
        return changed


def _without_labels(policy: NamespacePolicy) -> NamespacePolicy:
    return replace(policy, labels={})


def _policy_inputs_of(facts: Facts) -> _PolicyInputs:
    # A copy, because the mapping of the facts changes with the cluster.
    return _PolicyInputs(facts.settings, dict(facts.priority_classes))
