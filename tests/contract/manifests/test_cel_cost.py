"""No CEL expression costs more than the API server lets it cost, whatever users write.

With `failurePolicy: Fail`, one that costs too much refuses every request about such an object, also
a kubelet's; with `Ignore`, it reviews nothing. The time of a loop grows with the square of its
entries (cel-go searches the values of all earlier turns in each turn), so it is bounded as well.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

import pytest

from reprieve_policy.config import preemption_class
from reprieve_policy.config.annotation_values import LONGEST
from reprieve_testing import cel_cost, manifests
from reprieve_testing.cel_cost import LIMIT, LONGEST_ANNOTATION, LONGEST_LIST, Sizes, worst_cost

LONGEST_LOOP = 1000
"""Entries: 10 ms of the API server's time. 40,000 take three seconds."""


class Written(NamedTuple):
    """An expression of the manifests."""

    place: str
    text: str


class Bound(NamedTuple):
    """The most entries of a list or a map without a guard beside its loop."""

    size: int
    reason: str


def expressions(value: object, place: str) -> Iterator[Written]:
    """Yield all expressions that a request is decided by.

    Those of messages are left out: if one cannot be evaluated, the message beside it is shown.
    """
    if isinstance(value, list):
        for part in value:
            yield from expressions(part, place)
    elif isinstance(value, dict):
        name = value.get("metadata", value).get("name")
        here = f"{place}/{name}" if name else place
        for key, part in value.items():
            if key == "expression":
                yield Written(here, part)
            else:
                yield from expressions(part, here)


ALL = [
    written
    for path in sorted(manifests.MANIFESTS.rglob("*.yaml"))
    for written in expressions(manifests.read(path), str(path.relative_to(manifests.MANIFESTS)))
]
EACH = [pytest.param(written, id=f"{n}-{written.place}") for n, written in enumerate(ALL)]


def limited_by_is_too_long(policy: str) -> dict[str, Bound]:
    """Return the bounds that the variable `isTooLong` of a policy sets."""
    spec = manifests.named("ValidatingAdmissionPolicy", policy)["spec"]
    (text,) = [each["expression"] for each in spec["variables"] if each["name"] == "isTooLong"]
    return {
        f"variables.{name}": Bound(int(limit), "an object with more is refused first")
        for names, limit in re.findall(r"\[([^]]*)\]\.exists\(\w+, \w+\.size\(\) > (\d+)\)", text)
        for name in re.findall(r"variables\.(\w+)", names)
    }


FIELDS = Bound(50, "the fields of a kind; its schema leaves out others")
OWN = "a configuration or a Secret of Reprieve, which only admins and the webhooks write"
ONE_OWNER = {
    "object.metadata.?ownerReferences.orValue([])": Bound(
        1, "looked at only where a controller creates an object, which gives it one owner"
    )
}
CLASSES = Bound(preemption_class.HIGHEST + 1, "the classes")
LISTED = r"namespaceObject.metadata.?annotations[?'_'].orValue('').split('_')"

LOOPS: Mapping[str, Mapping[str, Bound]] = {
    "base/guard.yaml/reprieve-marks": limited_by_is_too_long("reprieve-marks"),
    "base/program-limits.yaml/reprieve-operator-limits": {
        **limited_by_is_too_long("reprieve-operator-limits"),
        **dict.fromkeys(("object", "oldObject", "object.metadata", "oldObject.metadata"), FIELDS),
        **{f"variables.{name}": FIELDS for name in ("spec", "oldSpec", "status", "oldStatus")},
        "variables.changed": Bound(LONGEST_LOOP, "what the operator changes by one write"),
    },
    "base/program-limits.yaml/reprieve-webhooks-limits": {
        **dict.fromkeys(("object", "oldObject", "object.metadata", "oldObject.metadata"), FIELDS),
        **dict.fromkeys(("variables.webhooks", "variables.oldWebhooks"), Bound(20, OWN)),
        "variables.webhooks.filter(new, new.name == old.name)": Bound(1, "names are unique"),
        **dict.fromkeys(("variables.data", "variables.oldData"), Bound(50, OWN)),
        **{
            f"{webhook}{part}": Bound(12, "the fields of a webhook")
            for webhook in ("old", "new")
            for part in ("", ".clientConfig", ".clientConfig.service")
        },
    },
    "base/webhook-configurations.yaml/reprieve-webhooks/claims.reprieve.dev": ONE_OWNER,
    "base/webhook-configurations.yaml/reprieve-webhooks/template-claims.reprieve.dev": ONE_OWNER,
    "overlays/cel/policies.yaml": {
        **ONE_OWNER,
        **dict.fromkeys(("allowed", "variables.allowed"), CLASSES),
        LISTED: Bound(LONGEST // 2 + 1, "read only if the whole text is short"),
    },
}
"""What is no longer than this for another reason than a guard beside the loop."""

TEXTS: Mapping[str, Bound] = {
    "key": Bound(317, "a prefix, a slash and a name"),
    **{
        f"{webhook}.clientConfig.{part}": Bound(200, OWN)
        for webhook in ("old", "new")
        for part in ("url", "service.path", "service.?path.orValue('')")
    },
}
"""What is shorter than an annotation may be."""

LISTS: Mapping[str, int] = {
    **{
        f"variables.{name}": 250
        for field in ("Finalizers", "Gates", "Conditions")
        for name in (field.lower(), f"old{field}")
    },
    **dict.fromkeys(("allowed", "variables.allowed"), CLASSES.size),
    "variables.fields": 20,
    "variables.marksSet": 3,
}
"""What `in` searches entry by entry."""
MAPS = re.compile(
    r".*\.orValue\({}\)|(old)?[oO]bject(\.metadata|\.spec\.nodeSelector)?|new(\.clientConfig.*)?|volume"
    r"|variables\.((old)?([lL]abels|[aA]nnotations|[sS]pec|[sS]tatus)|data|fieldsByWrite)"
)


def loop_size(place: str, values: str) -> int:
    """Return the bound of what a loop at this place goes through; literals in it are hidden."""
    bounds = next((found for where, found in LOOPS.items() if place.startswith(where)), {})
    names = (re.sub("_+", "_", name) for name in (values, cel_cost.without_loops(values)))
    size = next((bounds[name].size for name in names if name in bounds), None)
    assert size, f"{place}: LOOPS does not say how many entries {values} has at most"
    return size


def list_size(values: str) -> int:
    if values.startswith("("):
        return CLASSES.size
    if values.endswith("finalizers.orValue([])"):
        # Of the two templates in a list, an object has one.
        return LONGEST_LIST // 2 if values.startswith("template.") else LONGEST_LIST
    assert values in LISTS or MAPS.fullmatch(values), f"is {values} a list or a map?"
    return LISTS.get(values, 1)


def text_size(values: str) -> int:
    return TEXTS[values].size if values in TEXTS else LONGEST_ANNOTATION


def sizes(place: str) -> Sizes:
    return Sizes(partial(loop_size, place), list_size, text_size)


@pytest.mark.parametrize("written", EACH)
def test_no_expression_can_cost_more_than_the_api_server_lets_it(written: Written) -> None:
    assert worst_cost(written.text, sizes(written.place)) <= LIMIT


@pytest.mark.parametrize("written", EACH)
def test_no_loop_can_take_the_api_server_long(written: Written) -> None:
    for loop in cel_cost.loops(written.text):
        size = loop.known_size or loop_size(written.place, loop.values)
        assert size <= LONGEST_LOOP


@pytest.mark.parametrize("policy", ["reprieve-marks", "reprieve-operator-limits"])
def test_what_is_too_long_is_not_gone_through(policy: str) -> None:
    """It is refused as too large, so that the program treats the object as one that is full."""
    spec = manifests.named("ValidatingAdmissionPolicy", policy)["spec"]
    refused = {each["expression"]: each["reason"] for each in spec["validations"]}
    assert refused["!variables.isTooLong"] == "RequestEntityTooLarge"
    limited = limited_by_is_too_long(policy)
    for each in (*spec["variables"], *spec["validations"]):
        loops = [loop.values for loop in cel_cost.loops(each["expression"])]
        if limited.keys() & loops:
            assert re.search(r"variables\.isTooLong (\|\||\? \[\] :)", each["expression"])
