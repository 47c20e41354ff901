"""For each difference the smallest scene that shows it: what upstream's plugin does there, and what Reprieve does."""

from collections.abc import Mapping
from dataclasses import dataclass

from .difference import Difference
from .scene import (
    CAN_PREEMPT,
    CLASS,
    COST,
    GANG,
    MINIMUM,
    PREEMPTIBLE,
    SECONDS,
    Node,
    Outcome,
    Pod,
    PriorityClass,
    Scene,
)

HIGH, LOW = PriorityClass(value=9000), PriorityClass(value=8000)
_OVERFLOWING = PriorityClass(value=8000, annotations={MINIMUM: "10000", SECONDS: "20000000000"})


@dataclass(frozen=True)
class Shown:
    """A scene and its two outcomes."""

    scene: Scene
    upstream: Outcome
    reprieve: Outcome


def _pod(name: str, age: int, **said: object) -> Pod:
    return Pod(**{"name": name, "priority_class": LOW, "started_ago": age} | said)  # type: ignore[arg-type]  # by their names


def _scene(difference: Difference, *nodes: tuple[Pod, ...], cpu: int = 1, **said: object) -> Scene:
    """Return full nodes, and a preemptor of higher priority than all on them."""
    preemptor = Pod(**{"name": "preemptor", "priority_class": HIGH, "cpu": cpu} | said)  # type: ignore[arg-type]  # by their names
    full = (Node(name=f"n{number}", cpu=sum(pod.cpu for pod in pods), pods=pods) for number, pods in enumerate(nodes))
    return Scene(name=f"shown-{difference}", preemptor=preemptor, nodes=tuple(full))


def _outcome(*victims: str, node: str = "n0") -> Outcome:
    return Outcome(node, frozenset(victims))


NOTHING = Outcome()
_FOUR = tuple(_pod(name, 1000 * number) for number, name in enumerate("abcd", 1))

SHOWN: Mapping[Difference, Shown] = {
    Difference.MOST_VICTIMS: Shown(
        _scene(Difference.MOST_VICTIMS, _FOUR, cpu=4), _outcome("a", "b", "c", "d"), NOTHING
    ),
    # b goes: there will be room for one. Upstream takes whoever started last, who is not going.
    Difference.GOING: Shown(
        _scene(Difference.GOING, (_pod("a", 1000), _pod("b", 2000, is_going=True))), _outcome("a"), NOTHING
    ),
    # 20,000,000,000 s overflow to 49 years.
    Difference.OVERFLOW: Shown(
        _scene(Difference.OVERFLOW, (_pod("a", 1000, priority_class=_OVERFLOWING),)), NOTHING, _outcome("a")
    ),
    Difference.COST: Shown(
        _scene(Difference.COST, (_pod("a", 1000, annotations={COST: "100"}),), (_pod("b", 2000),)),
        _outcome("a"),
        _outcome("b", node="n1"),
    ),
    Difference.CLASS: Shown(_scene(Difference.CLASS, (_pod("a", 1000, labels={CLASS: "5"}),)), _outcome("a"), NOTHING),
    Difference.PREEMPTIBLE: Shown(
        _scene(Difference.PREEMPTIBLE, (_pod("a", 1000, labels={PREEMPTIBLE: "false"}), _pod("b", 2000))),
        _outcome("a"),
        _outcome("b"),
    ),
    Difference.CAN_PREEMPT: Shown(
        _scene(Difference.CAN_PREEMPT, (_pod("a", 1000),), labels={CAN_PREEMPT: "false"}), _outcome("a"), NOTHING
    ),
    Difference.DEFENCE: Shown(
        _scene(Difference.DEFENCE, (_pod("a", 1000, defended_as=HIGH), _pod("b", 2000))), _outcome("a"), _outcome("b")
    ),
    # All of the gang would go for one pod; b goes alone.
    Difference.GANG: Shown(
        _scene(
            Difference.GANG,
            (_pod("a", 1000, labels={GANG: "train"}), _pod("b", 2000)),
            (_pod("c", 3000, labels={GANG: "train"}),),
        ),
        _outcome("a"),
        _outcome("b"),
    ),
}
