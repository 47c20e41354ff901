"""Which Job controls an object."""

import pytest

from reprieve_policy.kube.jobs import owning_job_of
from reprieve_policy.kube.objects import ObjectMeta, OwnerReference


def controlled_by(kind: str, api_version: str, *, controller: bool = True) -> ObjectMeta:
    owner = OwnerReference(
        apiVersion=api_version, kind=kind, name="train", uid="1", controller=controller
    )
    return ObjectMeta(ownerReferences=[owner])


def test_a_batch_job_that_controls_a_pod_is_its_job():
    owner = owning_job_of(controlled_by("Job", "batch/v1"))
    assert owner is not None
    assert owner.name == "train"


@pytest.mark.parametrize(
    "metadata",
    [
        ObjectMeta(),
        controlled_by("ReplicaSet", "apps/v1"),
        controlled_by("Job", "batch.volcano.sh/v1alpha1"),
        controlled_by("Job", "batch"),
        controlled_by("Job", "batch/v1", controller=False),
    ],
    ids=[
        "no owner",
        "another kind",
        "Volcano's Job",
        "a core kind of that name",
        "an owner that is no controller",
    ],
)
def test_other_owners_are_no_job(metadata: ObjectMeta):
    assert owning_job_of(metadata) is None
