"""The PodGroups of the Coscheduling plugin, where they are served; their status is not written."""

from http import HTTPStatus

from reprieve_policy.gangs import start_requirements
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.gangs.start_requirements import NO_REQUIREMENTS, StartRequirements
from reprieve_policy.kube.coscheduling_groups import CoschedulingGroup
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector

_ABSENT_RETRY_SECONDS = 60.0
"""A CustomResourceDefinition that is installed later is noticed after at most this time."""


class CoschedulingGroups:
    """What each PodGroup says of the start of its gang."""

    def __init__(self, api: Api) -> None:
        self.reflector: Reflector[CoschedulingGroup, StartRequirements] = Reflector(
            api,
            object_path("podgroups.scheduling.x-k8s.io"),
            CoschedulingGroup,
            start_requirements.read,
            absent_retry_seconds=_ABSENT_RETRY_SECONDS,
            absent_statuses=(HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN),
        )

    def find(self, namespace: str, gang: Gang | None) -> StartRequirements:
        """Return what the PodGroup of a gang requires, as far as it is known."""
        name = start_requirements.group_name_of(gang)
        if name is None:
            return NO_REQUIREMENTS
        return self.reflector.items.get((namespace, name), NO_REQUIREMENTS)
