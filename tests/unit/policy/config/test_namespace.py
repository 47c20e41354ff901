"""A Namespace's policy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy import keys
from reprieve_policy.config import namespace
from reprieve_policy.config.namespace import WORKLOAD_TYPE_CLASS, NamespacePolicy
from reprieve_policy.config.preemption_class import UNLISTED, ClassSet
from reprieve_policy.kube.objects import Resource, annotations_of, labels_of
from reprieve_policy.verdict import Violation, ViolationKind
from reprieve_testing.objects.builders import NamespaceBuilder, a_namespace

TEN = ClassSet(frozenset({10}))
ALL = ClassSet(frozenset(range(11)))


def parse(resource: Resource) -> NamespacePolicy | tuple[Violation, ...]:
    return namespace.parse(labels_of(resource.metadata), annotations_of(resource.metadata))


READ = {
    "a Namespace without annotations allows 0 to 6": (
        a_namespace(),
        NamespacePolicy(allowed_classes=UNLISTED),
    ),
    "a workload type": (
        a_namespace().for_workloads("ml-training"),
        NamespacePolicy(workload_type="ml-training"),
    ),
    "allowed classes": (
        a_namespace().allowing_classes("0-10"),
        NamespacePolicy(allowed_classes=ALL),
    ),
    "a default class": (a_namespace().giving_class(3), NamespacePolicy(default_class=3)),
    "a default class that the list allows": (
        a_namespace().allowing_classes("0-10").giving_class(9),
        NamespacePolicy(allowed_classes=ALL, default_class=9),
    ),
    "enforcement as an annotation": (
        a_namespace().enforcing("warn"),
        NamespacePolicy(enforcement="warn"),
    ),
    "enforcement as a label": (
        a_namespace().labelled(keys.ENFORCEMENT, "off"),
        NamespacePolicy(enforcement="off"),
    ),
    "enforcement as both: the label holds": (
        a_namespace().enforcing("warn").labelled(keys.ENFORCEMENT, "off"),
        NamespacePolicy(enforcement="off"),
    ),
    "a sensitive one allows 10 only": (
        a_namespace().for_workloads("sensitive"),
        NamespacePolicy(workload_type="sensitive", allowed_classes=TEN),
    ),
    "a sensitive one allows 10 only, whatever it lists": (
        a_namespace().for_workloads("sensitive").allowing_classes("0-6").giving_class(10),
        NamespacePolicy(workload_type="sensitive", allowed_classes=TEN, default_class=10),
    ),
}


@pytest.mark.parametrize(("builder", "want"), READ.values(), ids=READ)
def test_policies_are_read(builder: NamespaceBuilder, want: NamespacePolicy) -> None:
    assert parse(builder.build()) == want


def test_only_a_sensitive_namespace_is_sensitive() -> None:
    sensitive = {
        name for name in WORKLOAD_TYPE_CLASS if NamespacePolicy(workload_type=name).is_sensitive
    }
    assert sensitive == {"sensitive"}


TYPE_PATH = "metadata.annotations[reprieve.dev/workload-type]"
ALLOWED_PATH = "metadata.annotations[reprieve.dev/allowed-preemption-classes]"
DEFAULT_PATH = "metadata.annotations[reprieve.dev/default-preemption-class]"
ENFORCEMENT_PATH = "metadata.annotations[reprieve.dev/enforcement]"
ENFORCEMENT_LABEL_PATH = "metadata.labels[reprieve.dev/enforcement]"

REFUSED = {
    "an unknown workload type": (
        a_namespace().for_workloads("batch"),
        [
            (
                f'{TYPE_PATH}: Unsupported value: "batch": '
                'supported values: "hpc-batch", "ml-training", '
            ),
        ],
    ),
    "an unknown enforcement": (
        a_namespace().enforcing("audit"),
        [
            (
                f'{ENFORCEMENT_PATH}: Unsupported value: "audit": '
                'supported values: "enforce", "warn", "off"'
            )
        ],
    ),
    "an unreadable enforcement beside a label that holds": (
        a_namespace().enforcing("audit").labelled(keys.ENFORCEMENT, "off"),
        [
            (
                f'{ENFORCEMENT_PATH}: Unsupported value: "audit": '
                'supported values: "enforce", "warn", "off"'
            )
        ],
    ),
    "a default class above the highest allowed one": (
        a_namespace().giving_class(7),
        [f'{DEFAULT_PATH}: Unsupported value: "7": classes allowed in this namespace: 0-6'],
    ),
    "a default class that its list leaves out": (
        a_namespace().allowing_classes("0-2,5").giving_class(3),
        [f'{DEFAULT_PATH}: Unsupported value: "3": classes allowed in this namespace: 0-2,5'],
    ),
    "a default class below 10 where it is sensitive": (
        a_namespace().for_workloads("sensitive").giving_class(5),
        [f'{DEFAULT_PATH}: Invalid value: "5": must be 10 where the workload type is sensitive'],
    ),
    "all mistakes at once": (
        a_namespace()
        .labelled(keys.ENFORCEMENT, "no")
        .for_workloads("batch")
        .allowing_classes("6-0")
        .giving_class(11)
        .enforcing("audit"),
        [ENFORCEMENT_LABEL_PATH, TYPE_PATH, ALLOWED_PATH, DEFAULT_PATH, ENFORCEMENT_PATH],
    ),
}


@pytest.mark.parametrize(("builder", "texts"), REFUSED.values(), ids=REFUSED)
def test_invalid_values_are_refused(builder: NamespaceBuilder, texts: list[str]) -> None:
    found = parse(builder.build())
    assert isinstance(found, tuple)
    assert [
        str(violation)[: len(text)] for violation, text in zip(found, texts, strict=True)
    ] == texts


LENIENT = {
    "an unreadable value counts as unsaid": (
        a_namespace().for_workloads("batch").giving_class(3),
        NamespacePolicy(default_class=3),
    ),
    "an unreadable label gives way to the annotation": (
        a_namespace().labelled(keys.ENFORCEMENT, "no").enforcing("warn"),
        NamespacePolicy(enforcement="warn", labels={keys.ENFORCEMENT: "no"}),
    ),
    "values that contradict each other: the default is dropped": (
        a_namespace().for_workloads("sensitive").giving_class(5),
        NamespacePolicy(workload_type="sensitive", allowed_classes=TEN),
    ),
    "an unreadable list hides that a default is not allowed": (
        a_namespace().allowing_classes("all").giving_class(9),
        NamespacePolicy(),
    ),
}


@pytest.mark.parametrize(("builder", "want"), LENIENT.values(), ids=LENIENT)
def test_a_policy_written_while_no_webhook_watched_is_read_leniently(
    builder: NamespaceBuilder, want: NamespacePolicy
) -> None:
    metadata = builder.build().metadata
    assert namespace.read_leniently(labels_of(metadata), annotations_of(metadata)) == want


def test_of_a_namespace_with_very_many_labels_the_name_is_kept() -> None:
    """Without this, some dozens of them would take all memory of all programs."""
    name = {"kubernetes.io/metadata.name": "team"}
    many = {f"example.org/l{number}": "x" for number in range(1000)}
    assert namespace.read_leniently(name | many, {}).labels == name
    assert namespace.read_leniently(many, {}).labels == {}
    few = name | dict(list(many.items())[:100])
    assert namespace.read_leniently(few, {}).labels == few


POLICY_KEYS = st.sampled_from(
    [
        keys.WORKLOAD_TYPE,
        keys.ALLOWED_PREEMPTION_CLASSES,
        keys.DEFAULT_PREEMPTION_CLASS,
        keys.ENFORCEMENT,
    ]
)
POLICY_TEXTS = st.sampled_from(["sensitive", "service", "off", "0-6", "10", "11", "3"]) | st.text(
    st.characters(exclude_categories=()), max_size=5
)
TEXTS = st.dictionaries(POLICY_KEYS, POLICY_TEXTS)


@given(TEXTS, TEXTS)
def test_reading_leniently_ends_with_a_policy_whatever_is_written(
    labels: dict[str, str], annotations: dict[str, str]
) -> None:
    policy = namespace.read_leniently(labels, annotations)
    assert policy.default_class is None or policy.default_class in policy.allowed_classes
    assert policy.allowed_classes.classes


def test_no_type_but_sensitive_gives_a_class_that_must_be_allowed_first() -> None:
    above = {name for name, value in WORKLOAD_TYPE_CLASS.items() if value not in UNLISTED}
    assert above == {"sensitive"}


def test_kinds_of_violations_are_the_api_servers() -> None:
    found = parse(a_namespace().giving_class("x").build())
    assert found == (
        Violation(
            DEFAULT_PATH, ViolationKind.INVALID, "x", "must be between 0 and 10, in plain digits"
        ),
    )
