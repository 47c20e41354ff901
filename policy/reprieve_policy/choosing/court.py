"""Every pod's verdict for one preemptor, gangs included: what goes as a whole is refused for what protects one of it."""

from collections.abc import Iterable

from reprieve_policy.disruption import Mode

from .grounds import Ground, Refusal, describe, ground_against
from .scene import Group, GroupKey, Preemptor, Scene, Tenant


class Court:
    """Judges all pods of a scene for one preemptor, each gang once."""

    def __init__(self, preemptor: Preemptor, scene: Scene) -> None:
        self.preemptor = preemptor
        self.scene = scene
        self._protected: dict[GroupKey, tuple[Tenant, Ground] | None] = {}

    def ground(self, tenant: Tenant) -> Ground | None:
        """Return on what the pod is no victim, `None` where it may be one."""
        own = ground_against(self.preemptor, tenant, self.scene)
        if own is not None or tenant.group is None:
            return own
        group = self.scene.groups.get(tenant.group)
        if group is None:
            return None
        if group.mode is Mode.ALL:
            return None if self._protector(group) is None else Ground.GANG
        return None if self.spare(group) > 0 else Ground.MIN_AVAILABLE

    def why_not(self, tenant: Tenant) -> Refusal | None:
        """Return why the pod is no victim, in a sentence."""
        ground = self.ground(tenant)
        if ground is None:
            return None
        group = None if tenant.group is None else self.scene.groups.get(tenant.group)
        if group is not None and ground is Ground.MIN_AVAILABLE:
            return Refusal(ground, f"its gang would have fewer than the {group.min_available} pods that it needs")
        if group is not None and ground is Ground.GANG:
            return Refusal(ground, self._tell_gang(group))
        return Refusal(ground, describe(ground, self.preemptor, tenant, self.scene))

    def whole(self, tenant: Tenant) -> Group | None:
        """Return the gang that goes as a whole with the pod, `None` for one that goes alone."""
        group = None if tenant.group is None else self.scene.groups.get(tenant.group)
        return group if group is not None and group.mode is Mode.ALL else None

    def spare(self, group: Group) -> int:
        """Return how many pods a gang that is disrupted one by one may lose; those that are going are lost."""
        return _staying(group.members) - group.min_available if group.min_available else len(group.members)

    def _protector(self, group: Group) -> tuple[Tenant, Ground] | None:
        """Return what protects the gang: the first of its pods that is refused, and on what."""
        if group.key not in self._protected:
            judged = ((member, ground_against(self.preemptor, member, self.scene)) for member in group.members)
            found = ((member, ground) for member, ground in judged if ground is not None)
            self._protected[group.key] = next(found, None)
        return self._protected[group.key]

    def _tell_gang(self, group: Group) -> str:
        found = self._protector(group)
        assert found is not None
        member, ground = found
        reason = describe(ground, self.preemptor, member, self.scene)
        return f"its gang goes as a whole, and {member.name} of it may not: {reason}"


def _staying(members: Iterable[Tenant]) -> int:
    return sum(not member.is_going for member in members)
