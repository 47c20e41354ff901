"""Rules apply to a template, not again to the objects that Kubernetes' controllers make from it."""

import pytest

from reprieve_policy.admission.review import decide_admission
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.facts import Facts
from reprieve_testing.objects.builders import a_pod

CONTROLLERS = [
    "system:kube-controller-manager",
    "system:serviceaccount:kube-system:replicaset-controller",
    "system:serviceaccount:kube-system:replication-controller",
    "system:serviceaccount:kube-system:statefulset-controller",
    "system:serviceaccount:kube-system:daemon-set-controller",
    "system:serviceaccount:kube-system:job-controller",
    "system:serviceaccount:kube-system:cronjob-controller",
    "system:serviceaccount:kube-system:deployment-controller",
]
OTHERS = [
    "",
    "kubernetes-admin",
    "system:serviceaccount:team:replicaset-controller",
    "system:serviceaccount:kube-system:somebodys-controller",
    "system:serviceaccount:kube-system:replicaset-controller ",
]
OWNED = a_pod().in_class(11).owned_by("ReplicaSet").build()


@pytest.mark.parametrize("user", CONTROLLERS)
def test_a_controllers_pod_is_admitted_and_its_violations_become_warnings(user: str) -> None:
    verdict = decide_admission(OWNED, None, Facts(), user=user)

    assert verdict.is_allowed
    assert verdict.warnings == (
        (
            'metadata.labels[reprieve.dev/preemption-class]: Invalid value: "11": '
            "must be between 0 and 10, in plain digits"
        ),
    )


@pytest.mark.parametrize("user", OTHERS)
def test_no_other_user_counts_as_a_controller(user: str) -> None:
    assert not decide_admission(OWNED, None, Facts(), user=user).is_allowed


def test_a_pod_that_no_controller_owns_was_made_from_no_template() -> None:
    assert not decide_admission(
        a_pod().in_class(11).build(), None, Facts(), user=CONTROLLERS[0]
    ).is_allowed


def test_a_controllers_update_is_ratcheted_like_any_users() -> None:
    good = a_pod().in_class(3).owned_by("ReplicaSet").build()

    assert not decide_admission(OWNED, good, Facts(), user=CONTROLLERS[0]).is_allowed
    assert decide_admission(OWNED, OWNED, Facts(), user=CONTROLLERS[0]).is_allowed


def test_a_valid_object_gets_no_warning() -> None:
    pod = a_pod().in_class(3).owned_by("ReplicaSet").build()

    assert decide_admission(pod, None, Facts(), user=CONTROLLERS[0]).is_empty
    assert decide_admission(
        OWNED, None, Facts(namespace=NamespacePolicy(enforcement="off")), user="x"
    ).is_empty
