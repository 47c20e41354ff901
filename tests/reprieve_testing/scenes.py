"""Nodes and who is on them, as a test says them: `a_scene(a_room("n").with_tenants(a_tenant("low")))`.

Plain functions over the frozen values of `choosing.scene`: a default says nothing that a test would want to say. Amounts
are whole CPUs unless a test names them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.gangs.disruption import Mode
from reprieve_policy.kube.quantity import NANOS
from reprieve_policy.preemption.cost import Stake, Work
from reprieve_policy.preemption.selection.snapshot import (
    Budget,
    Group,
    GroupKey,
    Guest,
    Preemptor,
    Repulsion,
    Requirement,
    Room,
    Scene,
    Tenant,
)

from .builders import NOW, after

EVERYBODY = (Repulsion(None, ()),)
"""Whom a tenant keeps away that wants to be alone."""


def amounts(**units: float) -> dict[str, int]:
    """Return amounts in nanos; `gpu` is NVIDIA's."""
    names = {"gpu": "nvidia.com/gpu"}
    return {names.get(name, name): int(amount * NANOS) for name, amount in units.items()}


def a_guest(uid: str = "preemptor", *, priority: int = 1000, cpu: float = 1, **fields: object) -> Guest:
    """Return a pod that wants room."""
    return replace(Guest(uid=uid, priority=priority, amounts=amounts(cpu=cpu)), **fields)  # type: ignore[arg-type]  # named by tests


def a_preemptor(*, priority: int = 1000, cpu: float = 1, **fields: object) -> Preemptor:
    """Return a pending pod of namespace `team` that asks for so many CPUs."""
    guest = a_guest(priority=priority, cpu=cpu)
    return replace(Preemptor(guest=guest, namespace="team", name="preemptor"), **fields)  # type: ignore[arg-type]  # named by tests


def a_tenant(name: str, *, priority: int = 0, cpu: float = 1, started: float = -3600, **fields: object) -> Tenant:
    """Return a pod that runs since `started` seconds after `NOW`; its uid is its name. One that goes was told to, now."""
    if fields.get("is_going"):
        fields = {"goes_at": NOW, "is_told": True, **fields}
    tenant = Tenant(
        uid=name,
        name=name,
        namespace="team",
        priority=priority,
        defence=priority,
        amounts=amounts(cpu=cpu),
        work=Work(started_at=after(started)),
        stake=Stake(devices=cpu),
    )
    return replace(tenant, **fields)  # type: ignore[arg-type]  # named by tests


def a_room(name: str, *tenants: Tenant, cpu: float = 4, pods: int = 110, **fields: object) -> Room:
    """Return a node of so many CPUs, with its tenants."""
    here = tuple(replace(tenant, node=name) for tenant in tenants)
    room = Room(name=name, allocatable=amounts(cpu=cpu, pods=pods), tenants=here)
    return replace(room, **fields)  # type: ignore[arg-type]  # named by tests


def a_budget(app: str, *, allowed: int = 0, disrupted: tuple[str, ...] = ()) -> Budget:
    """Return a PodDisruptionBudget of the pods of namespace `team` that are labelled `app`."""
    requirements = (Requirement("app", "In", (app,)),)
    return Budget(namespace="team", requirements=requirements, allowed=allowed, disrupted=frozenset(disrupted))


@dataclass(frozen=True)
class SceneBuilder:
    """A cluster at `NOW`."""

    scene: Scene

    def build(self) -> Scene:
        return self.scene

    def with_budgets(self, *budgets: Budget) -> Self:
        return replace(self, scene=replace(self.scene, budgets={"team": budgets}))

    def with_settings(self, settings: PolicySettings) -> Self:
        return replace(self, scene=replace(self.scene, settings=settings))

    def with_gang(self, name: str, mode: Mode = Mode.ALL, min_available: int = 0) -> Self:
        """Say how the gang goes whose pods name it."""
        key = GroupKey("team", name)
        members = tuple(tenant for room in self.scene.rooms.values() for tenant in room.tenants if tenant.group == key)
        group = Group(key=key, mode=mode, min_available=min_available, members=members)
        return replace(self, scene=replace(self.scene, groups={**self.scene.groups, key: group}))


def a_scene(*rooms: Room) -> SceneBuilder:
    """Return a cluster of these nodes, with the default policy."""
    by_name: Mapping[str, Room] = {room.name: room for room in rooms}
    return SceneBuilder(Scene(now=NOW, rooms=by_name))
