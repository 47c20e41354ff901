"""What the JobSet, LeaderWorkerSet or PodGroup of a new pod's gang states for its pods.

One read for each object, shared by all reviews of a second: a gang of a thousand pods costs a call
a second while its pods are created. Pods that name no such object cost none.
"""

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from reprieve_policy.facts import GangStatement
from reprieve_policy.gangs import disruption, gang_objects
from reprieve_policy.keys import DISRUPTION_MODE
from reprieve_policy.kube.objects import Resource, pod_views
from reprieve_runtime.client.api import Api, ApiError
from reprieve_webhooks.lookups.getter import CachedGetter
from reprieve_webhooks.lookups.limits import FAIR_LIMITS, MAX_OBJECT_BYTES

_LOG = logging.getLogger(__name__)


class _GangObjectSpec(msgspec.Struct, gc=False):
    """The part of a PodGroup's spec that is read; other kinds have no such field."""

    min_member: int | None = msgspec.field(default=None, name="minMember")


class _GangObjectAnnotations(msgspec.Struct, gc=False):
    """The annotation that is read."""

    disruption_mode: str = msgspec.field(default="", name=DISRUPTION_MODE)


class _GangObjectMeta(msgspec.Struct, gc=False):
    """The part of the metadata that is read."""

    annotations: _GangObjectAnnotations | None = None


class _GangObject(msgspec.Struct, gc=False):
    """An object that the pods of a gang name."""

    metadata: _GangObjectMeta
    spec: _GangObjectSpec | None = None


def _statement_of(found: _GangObject) -> tuple[Mapping[str, str], int | None]:
    """Return what is kept of an object.

    Results stay in memory. Without this, a user could fill it with annotations of a thousand
    objects, a quarter of a megabyte each.
    """
    annotations, spec = found.metadata.annotations, found.spec
    stated = {} if annotations is None else {DISRUPTION_MODE: annotations.disruption_mode}
    return (
        {DISRUPTION_MODE: disruption.stated_mode(stated)},
        None if spec is None else spec.min_member,
    )


class GangStatements:
    """Reads these objects when a pod is created."""

    def __init__(self, api: Api, *, lookup_timeout_seconds: float) -> None:
        self._getter = CachedGetter(
            api,
            _GangObject,
            _statement_of,
            timeout_seconds=lookup_timeout_seconds,
            limits=FAIR_LIMITS,
            max_bytes=MAX_OBJECT_BYTES,
        )

    async def find(self, pod: Resource, namespace: str) -> GangStatement | None:
        """Return what the objects of the pod's gang state; `None`: there are none.

        Never raises: an unknown statement gives the pod nothing, and refuses nothing.
        """
        named = gang_objects.named_by(next(pod_views(pod))) if pod.kind == "Pod" else ()
        if not named:
            return None
        # At once: a pod that names a JobSet and a PodGroup waits no longer than one with a JobSet.
        reads = (self._getter.find(one.resource, one.name, namespace) for one in named)
        try:
            objects = await asyncio.gather(*reads)
        except (ApiError, msgspec.MsgspecError) as error:
            _LOG.warning(
                "could not read an object of the gang; the pod gets nothing from it",
                extra={"namespace": namespace, "error": str(error)},
            )
            return GangStatement(is_known=False)
        return gang_objects.read(found for found in objects if found is not None)
