"""What a user can see of Reprieve in a cluster: its webhook configuration and its leader.

What the user may not read is unknown: nothing is concluded from it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from reprieve_policy.kube.values import timestamp
from reprieve_policy.kube.webhook_configurations import WebhookConfiguration
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.lease import Lease

NAMESPACE = "reprieve-system"
LEASE = "reprieve-operator"
WEBHOOKS = "reprieve-webhooks"
"""The name of both webhook configurations, and of the webhooks' Deployment."""
_CLOCK_SKEW = timedelta(seconds=30)
"""The largest difference assumed between the clocks of the API server and the operator."""

T = TypeVar("T")


class Absence(StrEnum):
    """Why an object could not be read."""

    NOT_FOUND = "not found"
    FORBIDDEN = "you may not read it"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderStatus:
    """The operator's leader; `holder` is empty if none has renewed the Lease in time."""

    holder: str = ""
    renewed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What was found; an `Absence` where it was not."""

    namespace: str
    mutating: WebhookConfiguration | Absence
    leader: LeaderStatus | Absence

    @property
    def is_absent(self) -> bool:
        """True if it is certain that Reprieve is not installed."""
        return self.mutating is Absence.NOT_FOUND and self.leader is Absence.NOT_FOUND

    @property
    def has_no_leader(self) -> bool:
        """True if it is certain that no operator acts."""
        return self.leader is Absence.NOT_FOUND or (
            isinstance(self.leader, LeaderStatus) and not self.leader.holder
        )


async def read(api: Api) -> Installation:
    """Read the webhook configuration and, in the namespace of its Service, the Lease.

    The Lease is judged by the API server's time: the clock of a user's machine may be minutes off.
    Of the two configurations the mutating one is read: the other holds the secret path of the
    guard, which users must not be able to read.
    """
    path = object_path("mutatingwebhookconfigurations", None, WEBHOOKS)
    mutating = await read_if_allowed(api, path, WebhookConfiguration)
    namespace = _namespace_of(mutating)
    lease = await read_if_allowed(api, object_path("leases", namespace, LEASE), Lease)
    leader = lease if isinstance(lease, Absence) else leader_of(lease, api.server_time.now())
    return Installation(namespace=namespace, mutating=mutating, leader=leader)


def _namespace_of(configuration: WebhookConfiguration | Absence) -> str:
    """Return the namespace of the webhooks' Service; the default if they are called by URL."""
    if isinstance(configuration, Absence):
        return NAMESPACE
    services = [each.clientConfig.service for each in configuration.webhooks or ()]
    return next((each.namespace for each in services if each and each.namespace), NAMESPACE)


def leader_of(lease: Lease, now: datetime) -> LeaderStatus:
    """Return the leader that a Lease names, if it has renewed it in time."""
    spec = lease.spec
    renewed = timestamp.parse(spec.renewTime)
    if not spec.holderIdentity or renewed is None:
        return LeaderStatus()
    until = renewed + timedelta(seconds=spec.leaseDurationSeconds or 0) + _CLOCK_SKEW
    return LeaderStatus(holder=spec.holderIdentity if now < until else "", renewed_at=renewed)


async def read_if_allowed(api: Api, path: str, decode_as: type[T]) -> T | Absence:
    """Return an object, or why it could not be read; raises `ApiError` for other failures."""
    try:
        return await api.get(path, decode_as)
    except ApiError as error:
        if error.is_not_found:
            return Absence.NOT_FOUND
        if error.is_forbidden:
            return Absence.FORBIDDEN
        raise
