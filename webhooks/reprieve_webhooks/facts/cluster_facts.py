"""Facts of the cluster, kept by watches, and one read for an object that no watch has seen yet.

Facts are as old as a watch is behind: normally milliseconds, and as long as an outage of the API
server lasts. Meanwhile the last known facts hold. A Namespace or PriorityClass that no watch has
seen is read once, so that the policy of a new Namespace already holds for its first pod. A fact
that cannot be known is never guessed, also not before the first complete lists: the review fails,
and the `failurePolicy` decides.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from reprieve_policy.admission import permissions
from reprieve_policy.checkpointing.agent import CheckpointService
from reprieve_policy.config.annotation_values import LONGEST
from reprieve_policy.config.namespace import OFF, NamespacePolicy
from reprieve_policy.facts import NO_JOB_REQUESTS, Facts, GangStatement, GangTraits, JobRequests
from reprieve_policy.gangs import gate, membership
from reprieve_policy.keys import DISRUPTION_MODE, PREEMPTION_PRIORITY_CLASS
from reprieve_policy.kube import controllers
from reprieve_policy.kube.objects import Resource, pod_views
from reprieve_policy.kube.template_kinds import TemplateKinds
from reprieve_policy.lifecycle.ledger import LedgerEntry
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.reflector import Reflector
from reprieve_runtime.policy_config_map import PolicyConfigMap
from reprieve_webhooks.admission.review import AdmissionRequest
from reprieve_webhooks.lookups.getter import CachedGetter
from reprieve_webhooks.lookups.limits import FAIR_LIMITS, MAX_OBJECT_BYTES

from .access_review import AccessReviewer
from .gang_records import GangRecords
from .gang_statements import GangStatements
from .gate_facts import SINGLE_POD, GateFacts
from .inheritance import Inheritance
from .job_pods import JobPods
from .namespace_policies import DEFAULT_POLICY, NamespacePolicyReader
from .priority_classes import PriorityClassReader
from .quotas import ElasticQuotas

_LOG = logging.getLogger(__name__)


class ClusterFacts:
    """The `FactsSource` of a running cluster."""

    def __init__(
        self,
        api: Api,
        own_namespace: str,
        config_map: str,
        *,
        lookup_timeout_seconds: float,
        show_policy: Callable[[PolicyConfigMap], None] = lambda _: None,
        operator_lease: str = "reprieve-operator",
        count_gang_lookup: Callable[[str], None] = lambda _: None,
        checkpoint_service: Callable[[], CheckpointService | None] = lambda: None,
        own_image: str = "reprieve",
    ) -> None:
        self._sync_timeout_seconds = lookup_timeout_seconds
        self._checkpoint_service = checkpoint_service
        self._own_image = own_image
        self._namespaces = NamespacePolicyReader(api, lookup_timeout_seconds=lookup_timeout_seconds)
        self._priority_classes = PriorityClassReader(
            api, lookup_timeout_seconds=lookup_timeout_seconds
        )
        self._policy_config_map = (own_namespace, config_map)
        self._policy = PolicyConfigMap(api, own_namespace, config_map, on_change=show_policy)
        self._access_reviewer = AccessReviewer(api, timeout_seconds=lookup_timeout_seconds)
        self._quotas = ElasticQuotas(api)
        self._gang_records = GangRecords(
            api, timeout_seconds=lookup_timeout_seconds, count=count_gang_lookup
        )
        self._gang_statements = GangStatements(api, lookup_timeout_seconds=lookup_timeout_seconds)
        self._job_pods = JobPods(api, timeout_seconds=lookup_timeout_seconds)
        self._inheritance = Inheritance(api, lookup_timeout_seconds=lookup_timeout_seconds)
        self._workload_getter = CachedGetter(
            api,
            _NativeWorkload,
            _annotations_for_groups,
            timeout_seconds=lookup_timeout_seconds,
            limits=FAIR_LIMITS,
            max_bytes=MAX_OBJECT_BYTES,
        )
        self._watched_for_pods = (
            self._namespaces.reflector.store,
            self._priority_classes.reflector.store,
            self._policy.reflector.store,
            self._quotas.reflector.store,
            self._inheritance.ledgers,
        )
        self._has_synced = False
        self._gate = GateFacts(
            api, own_namespace, operator_lease, lookup_timeout_seconds=lookup_timeout_seconds
        )

    @property
    def is_synced(self) -> bool:
        """True once every collection has been listed."""
        return not self.unsynced

    @property
    def unsynced(self) -> tuple[str, ...]:
        """Return the collections that have not been listed yet."""
        return tuple(name for name, reflector in self.watches().items() if not reflector.is_synced)

    @property
    def template_kinds(self) -> TemplateKinds:
        """Return the kinds of other projects whose pod templates the policy lists."""
        return self._policy.current.template_kinds

    @property
    def version(self) -> int:
        """A number that grows with every change of what watches tell about a pod."""
        # In each review, and a list is faster than a generator.
        return sum([each.changes for each in self._watched_for_pods])

    def are_watched(self, namespace: str, facts: Facts) -> bool:
        """Return whether the watches told all of this: no object was read for one review."""
        return (
            facts.namespace is self._namespaces.watched(namespace)
            and facts.priority_classes is self._priority_classes.by_name
        )

    def inherits_nothing(self, pod: Resource, namespace: str) -> bool:
        """Return whether no owner of the pod keeps a ledger, for this pod or for another one."""
        return self._inheritance.is_nothing(pod, namespace)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self.watches().values():
                tasks.create_task(reflector.run())

    def watched_facts(self, namespace: str) -> Facts:
        """Return what the watches know of a Namespace and of the cluster, without a call."""
        return Facts(
            settings=self._policy.current,
            namespace=self._namespaces.watched(namespace) or DEFAULT_POLICY,
            priority_classes=self._priority_classes.by_name,
            operator_is_live=not self._gate.has_lost_leader,
            quotas=self._quotas.quotas,
        )

    async def facts_for(self, request: AdmissionRequest, resource: Resource) -> Facts:
        """Return the facts for one review; `ApiError` if one must be read and cannot be."""
        # Waits only for what is missing: this runs in every review, and nearly always all is known.
        if not self._has_synced:
            await self._wait_synced()
        policy = self._watched_policy(request, resource)
        unknown = self._priority_classes.unknown_names(resource)
        settings = self._policy.current
        opens_gates = self._gate.opens_gates
        is_new = request.operation == "CREATE"
        may_be_gated = opens_gates and gate.may_be_gated(resource, settings)
        ledger_entry, gang_statement, together = await self._read_about_pod(
            request, resource, is_new=is_new, may_be_gated=may_be_gated
        )
        facts = Facts(
            settings=settings,
            namespace=await self._namespaces.look_up(request.namespace)
            if policy is None
            else policy,
            priority_classes=await self._priority_classes.look_up(unknown)
            if unknown
            else self._priority_classes.by_name,
            ledger_entry=ledger_entry,
            policy_config_map=self._policy_config_map,
            operator_is_live=not self._gate.has_lost_leader,
            operator_opens_gates=opens_gates,
            pods_created_together=together,
            quotas=self._quotas.quotas,
            checkpoint_service=self._checkpoint_service(),
            own_image=self._own_image,
            workload_annotations=await self._workload_annotations(resource, request.namespace)
            if is_new
            else {},
            gang_statement=gang_statement,
        )
        return await self._with_missing_permissions(request, resource, facts)

    async def _read_about_pod(
        self, request: AdmissionRequest, resource: Resource, *, is_new: bool, may_be_gated: bool
    ) -> tuple[LedgerEntry | None, GangStatement | None, int]:
        """Return what a pod inherits, what its gang states, and how many are created with it."""
        about = resource, request.namespace
        if is_new and may_be_gated:
            # At once: each may be a call, and the API server waits for the review.
            return await asyncio.gather(
                self._inheritance.find_entry(*about),
                self._gang_statements.find(*about),
                self._gate.count_created_together(*about),
            )
        return (
            await self._inheritance.find_entry(*about) if is_new else None,
            await self._gang_statements.find(*about) if is_new else None,
            await self._gate.count_created_together(*about) if may_be_gated else SINGLE_POD,
        )

    async def _workload_annotations(self, group: Resource, namespace: str) -> Mapping[str, str]:
        """Return the annotations of the Workload that a PodGroup is made from.

        Never raises: without them, the other rules still hold for the group.
        """
        named = None if group.spec is None else group.spec.workloadRef
        if group.kind != "PodGroup" or named is None:
            return {}
        name = named.workloadName or ""
        try:
            return await self._workload_getter.find("workloads", name, namespace) or {}
        except (ApiError, msgspec.MsgspecError) as error:
            extra = {"namespace": namespace, "error": str(error)}
            _LOG.warning("could not read a Workload; its PodGroup inherits nothing", extra=extra)
            return {}

    async def _with_missing_permissions(
        self, request: AdmissionRequest, resource: Resource, facts: Facts
    ) -> Facts:
        """Add the permissions that the user lacks; nearly every object needs none."""
        needed = permissions.required_permissions(resource, request.old_object, facts)
        user = request.user_info
        # For what a controller makes from a template, the author of the template needed the right.
        if not needed or controllers.is_made_from_template(resource, user.username):
            return facts
        missing = await self._access_reviewer.missing_permissions(user, needed, request.namespace)
        return replace(facts, missing_permissions=missing)

    async def gang_traits(
        self, request: AdmissionRequest, resource: Resource, facts: Facts
    ) -> GangTraits | None:
        """Return what the other members of a gang state, when a pod is created or joins it."""
        if resource.kind != "Pod" or facts.namespace.enforcement == OFF:
            return None
        before = request.old_object if request.operation == "UPDATE" else None
        if before is None or _gang_key(before) != _gang_key(resource):
            return await self._gang_records.other_members_traits(
                resource, request.namespace, facts, is_dry_run=bool(request.dry_run)
            )
        if not request.dry_run:
            self._gang_records.forget(resource, request.namespace)
        return None

    async def job_requests(
        self, request: AdmissionRequest, resource: Resource, facts: Facts
    ) -> JobRequests:
        """Return what the other pods of a bare pod's job request from its quota."""
        is_made = controllers.is_made_from_template(resource, request.user_info.username)
        if resource.kind != "Pod" or facts.namespace.enforcement == OFF or is_made:
            return NO_JOB_REQUESTS
        return await self._job_pods.other_requests(
            resource,
            request.old_object if request.operation == "UPDATE" else None,
            request.namespace,
            facts,
            is_dry_run=bool(request.dry_run),
        )

    def _watched_policy(
        self, request: AdmissionRequest, resource: Resource
    ) -> NamespacePolicy | None:
        if resource.kind in _ADMIN_KINDS or not request.namespace:
            # The API server names a Namespace as its own namespace. Its policy is checked whatever
            # its enforcement is: an admin who enables that again relies on a valid policy. The same
            # holds for the cluster's policy.
            return DEFAULT_POLICY
        return self._namespaces.watched(request.namespace)

    async def _wait_synced(self) -> None:
        """Wait a little for the first complete lists.

        With half of them, an object that is not listed yet would seem not to exist.
        """
        try:
            async with asyncio.timeout(self._sync_timeout_seconds):
                for reflector in self.watches().values():
                    await reflector.wait_synced(self._sync_timeout_seconds)
        except TimeoutError:
            raise ApiError(0, "NotListed", f"not listed yet: {', '.join(self.unsynced)}") from None
        self._has_synced = True

    def watches(self) -> Mapping[str, Reflector[Any, Any]]:
        """Return the watches by collection."""
        return {
            "namespaces": self._namespaces.reflector,
            "priorityclasses": self._priority_classes.reflector,
            "policy": self._policy.reflector,
            "lease": self._gate.reflector,
            "elasticquotas": self._quotas.reflector,
            **self._inheritance.reflectors,
        }


_ADMIN_KINDS = frozenset({"Namespace", "ConfigMap"})


class _WorkloadAnnotations(msgspec.Struct, gc=False, omit_defaults=True):
    """Those that PodGroups take over (`pod_group.WORKLOAD_KEYS`)."""

    priority_class: str | None = msgspec.field(default=None, name=PREEMPTION_PRIORITY_CLASS)
    disruption_mode: str | None = msgspec.field(default=None, name=DISRUPTION_MODE)


class _NativeWorkloadMeta(msgspec.Struct, gc=False):
    annotations: _WorkloadAnnotations | None = None


class _NativeWorkload(msgspec.Struct, gc=False):
    metadata: _NativeWorkloadMeta = msgspec.field(default_factory=_NativeWorkloadMeta)


def _annotations_for_groups(workload: _NativeWorkload) -> Mapping[str, str]:
    """Return the annotations of a Workload that its PodGroups take over.

    They stay in memory for a while, and what is longer can be no valid value.
    """
    stated = msgspec.to_builtins(workload.metadata.annotations or _WorkloadAnnotations())
    return {key: text for key, text in stated.items() if len(text) <= LONGEST}


def _gang_key(pod: Resource) -> tuple[str, str] | None:
    found = membership.read(next(pod_views(pod)))
    return None if found is None else found.key
