"""The PriorityClasses of the preemption classes, as they are shipped."""

import msgspec

from reprieve_policy import keys
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.config import preemption_class
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Resource, annotations_of
from reprieve_testing import manifests

COMPONENT = manifests.MANIFESTS / "components" / "class-priorities"
(KUSTOMIZATION,) = manifests.read(COMPONENT / "kustomization.yaml")
SHIPPED = [
    msgspec.convert(found, Resource) for found in manifests.read(COMPONENT / "priorityclasses.yaml")
]
AUTOSCALERS_CUTOFF = -10
"""Below this priority (`--expendable-pods-priority-cutoff`) no node is added for a pod."""


def test_each_class_has_one_and_gives_itself() -> None:
    classes = range(preemption_class.LOWEST, preemption_class.HIGHEST + 1)
    assert [found.metadata.name for found in SHIPPED] == [
        preemption_class.priority_class_name(value) for value in classes
    ]
    assert [annotations_of(found.metadata)[keys.DEFAULT_PREEMPTION_CLASS] for found in SHIPPED] == [
        str(value) for value in classes
    ]
    assert not any(found.globalDefault for found in SHIPPED)


def test_the_values_rise_with_the_class_from_where_nodes_are_added_for_pods() -> None:
    values = [found.value or 0 for found in SHIPPED]
    assert values == sorted(set(values))
    assert values[0] >= AUTOSCALERS_CUTOFF
    assert values[PolicySettings().default_class] == 0


def test_they_break_no_rule() -> None:
    assert all(decide_admission(found, None, Facts()).is_empty for found in SHIPPED)


def test_the_component_has_them_and_leaves_the_policy_to_the_admin() -> None:
    assert KUSTOMIZATION["resources"] == ["priorityclasses.yaml"]
    assert "patches" not in KUSTOMIZATION
