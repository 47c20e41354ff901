"""Whether victims get Reprieve's finalizer now, and where none may keep it.

The rules are in `lifecycle.cleanup`. Two more come from what is being deleted: a Namespace that is
terminating waits for no Reprieve, and an operator whose own Namespace is terminating leaves no pod
behind that only it could release.
"""

from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import NamespacePolicies, PolicySource
from reprieve_policy.kube.objects import VersionedMeta
from reprieve_policy.lifecycle import cleanup
from reprieve_policy.lifecycle.eviction import Eviction


class Hold:
    """The use of the finalizer in one term."""

    def __init__(
        self, policy: PolicySource, namespaces: NamespacePolicies, own_namespace: str
    ) -> None:
        self._policy = policy
        self._namespaces = namespaces
        self._own_namespace = own_namespace

    def adds_finalizer(self, pod: VictimPod, state: Eviction) -> bool:
        """True if the write of this state puts the finalizer on the pod, unless it is there."""
        is_living = pod.metadata.deletionTimestamp is None
        may_hold = is_living and not self.must_release(pod.metadata)
        return may_hold and cleanup.is_held(state, self._policy.current)

    def must_release(self, metadata: VersionedMeta) -> bool:
        """True if the pod may not be held any longer, whatever is still to be written."""
        return self._namespaces.is_terminating(metadata.namespace) or self.is_ending

    @property
    def is_ending(self) -> bool:
        """True if the operator's own Namespace is terminating: Reprieve is being uninstalled."""
        return self._namespaces.is_terminating(self._own_namespace)
