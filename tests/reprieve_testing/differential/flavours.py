"""Scenes whose pods say what upstream's plugin doesn't know: one key each, sprinkled over a scene from the generator."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from random import Random

from . import generator
from .difference import Difference
from .scene import CAN_PREEMPT, CLASS, COST, GANG, PREEMPTIBLE, Node, Pod, PriorityClass, Scene

_Change = Callable[[Random, Pod, Scene], Pod]


def flavoured(each: int, seed: int) -> list[Scene]:
    """Return so many scenes of each flavour."""
    plain = iter(generator.scenes(each * len(_FLAVOURS), seed))
    return [
        flavour(Random(f"{seed}/{difference}/{number}"), replace(next(plain), name=f"{difference}-{number}"))
        for difference, flavour in _FLAVOURS.items()
        for number in range(each)
    ]


def _sprinkled(change: _Change) -> Callable[[Random, Scene], Scene]:
    """Return a flavour that changes each pod by itself, the preemptor too."""

    def flavour(random: Random, scene: Scene) -> Scene:
        nodes = [replace(node, pods=tuple(change(random, pod, scene) for pod in node.pods)) for node in scene.nodes]
        return replace(scene, nodes=tuple(nodes), preemptor=change(random, scene.preemptor, scene))

    return flavour


def _labelled(key: str, *values: str | None) -> _Change:
    """Return a change that labels a pod with one of these, or not at all."""

    def change(random: Random, pod: Pod, _scene: Scene) -> Pod:
        value = random.choice(values)
        return pod if value is None else replace(pod, labels={**pod.labels, key: value})

    return change


def _in_gangs(random: Random, pod: Pod, scene: Scene) -> Pod:
    # Scenes share their Namespaces: each has gangs of its own.
    value = random.choice((None, "a", "a", "b"))
    return pod if value is None else replace(pod, labels={**pod.labels, GANG: f"{scene.name}-{value}"})


def _defended(random: Random, pod: Pod, scene: Scene) -> Pod:
    mine = scene.preemptor.priority
    if pod.name == scene.preemptor.name or random.random() < 0.5:
        return pod
    value = min(random.choice((mine - 1, mine, mine + 1, pod.priority, pod.priority - 5)), 10**9)
    return replace(pod, defended_as=PriorityClass(value=value))


def _alike(random: Random, scene: Scene) -> Scene:
    """Make nodes that differ in nothing but what it costs to make room, and since when: upstream finds them equal."""
    names, ages = count(), iter(random.sample(range(600, 100_000), 40))
    first = scene.nodes[0]

    def copy(pod: Pod) -> Pod:
        cost = random.choice((None, "0", "-100", "5", "5", "2147483647"))
        said = {} if cost is None else {COST: cost}
        return replace(pod, name=f"p{next(names)}", annotations=said, started_ago=next(ages), is_going=False)

    nodes = (Node(name=f"n{number}", cpu=first.cpu, pods=tuple(map(copy, first.pods))) for number in range(3))
    preemptor = replace(scene.preemptor, cpu=1, memory=1)
    return replace(scene, preemptor=preemptor, nodes=tuple(nodes), budgets=())


_FLAVOURS: Mapping[Difference, Callable[[Random, Scene], Scene]] = {
    Difference.CLASS: _sprinkled(_labelled(CLASS, None, *map(str, range(7)))),
    Difference.PREEMPTIBLE: _sprinkled(_labelled(PREEMPTIBLE, None, "false", "true", "False")),
    Difference.CAN_PREEMPT: _sprinkled(_labelled(CAN_PREEMPT, None, "false", "true", "no")),
    Difference.DEFENCE: _sprinkled(_defended),
    Difference.GANG: _sprinkled(_in_gangs),
    Difference.COST: _alike,
}
