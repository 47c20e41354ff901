"""Reviews of other projects' kinds, of any form: only the templates at listed paths are read."""

import json
from typing import Any

import pytest

from reprieve_policy.kube import kinds, template_kinds
from reprieve_policy.kube.objects import TemplatedResource, pod_views
from reprieve_policy.kube.template_kinds import TemplateKinds
from reprieve_testing.servers.reviews import a_review, running_server
from reprieve_webhooks.admission import review
from reprieve_webhooks.admission.review import AdmissionRequest, Malformed

LABEL = "reprieve.dev/preemption-class"
JOB_SET = {"group": "jobset.x-k8s.io", "version": "v1alpha2", "kind": "JobSet"}
VOLCANO_JOB = {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"}
BAD = (
    f"spec.tasks[0].template.metadata.labels[{LABEL}]: Invalid value: "
    '"11": must be between 0 and 10, in plain digits'
)


def a_template(preemption_class: object, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": {LABEL: preemption_class}}, "spec": spec}


def a_job(*templates: Any, **fields: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "j", "namespace": "team-a"},
        "spec": {"tasks": [{"template": t} for t in templates]} | fields,
    }


def parsed(
    document: Any, kind: Any = VOLCANO_JOB, old: Any = None, **listed: Any
) -> AdmissionRequest:
    sent = a_review(document, old=old, kind=kind)
    found = review.parse(json.dumps(sent).encode(), **listed)
    assert isinstance(found, AdmissionRequest)
    return found


def classes(found: AdmissionRequest) -> list[str]:
    assert isinstance(found.object, TemplatedResource)
    return [view.labels.get(LABEL, "") for view in pod_views(found.object)]


def test_a_custom_kind_named_like_a_built_in_one_is_read_by_its_own_paths() -> None:
    found = parsed(a_job(a_template("3"), a_template("4"), template=a_template("5")))
    assert review.has_rules(found)
    assert found.object is not None
    assert found.object.kind == kinds.CUSTOM
    assert found.object.metadata.namespace == "team-a"
    assert classes(found) == ["3", "4"]


CLASHES: dict[str, dict[str, Any]] = {
    "a field that is a number in ours": {"replicas": "many"},
    "a field that is a template in ours": {"template": "a-template-by-name"},
    "a field that is a list in ours": {"tolerations": {"a": 1}},
    'a field "templates" of another form': {"templates": [1, 2]},
}


@pytest.mark.parametrize("fields", CLASHES.values(), ids=CLASHES)
def test_an_object_whose_form_clashes_with_built_in_fields_is_read(fields: dict[str, Any]) -> None:
    found = parsed(a_job(a_template("3"), **fields))
    assert classes(found) == ["3"]
    assert found.namespace == "team-a"


def test_an_invalid_pod_spec_leaves_the_metadata_readable() -> None:
    assert classes(parsed(a_job(a_template("3", containers="none")))) == ["3"]


def test_invalid_metadata_is_left_to_the_review_of_the_pods() -> None:
    assert classes(parsed(a_job(a_template(11), {"metadata": 7}, {}))) == ["", "", ""]


def test_the_upstream_kind_of_an_object_is_known() -> None:
    job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {}}
    found = parsed(job_set, kind=JOB_SET).object
    assert isinstance(found, TemplatedResource)
    assert found.upstream_kind == ("jobset.x-k8s.io", "JobSet")


def test_a_pod_group_of_another_project_is_read_for_its_own_metadata() -> None:
    group = {"group": "scheduling.x-k8s.io", "version": "v1alpha1", "kind": "PodGroup"}
    said = {"annotations": {"reprieve.dev/disruption-mode": "pod"}}
    found = parsed({"metadata": said, "spec": {"minMember": 2}}, kind=group)
    assert review.has_rules(found)
    assert found.object is not None
    assert found.object.kind == kinds.CUSTOM
    assert found.object.metadata.annotations == said["annotations"]
    assert classes(found) == []


def test_both_objects_of_an_update_are_read() -> None:
    found = parsed(a_job(a_template("3")), old=a_job(a_template("4")))
    assert isinstance(found.old_object, TemplatedResource)
    assert [view.labels[LABEL] for view in pod_views(found.old_object)] == ["4"]


def test_a_kind_that_is_not_listed_is_not_read() -> None:
    found = parsed(a_job(a_template("11")), kind=JOB_SET | {"kind": "Other"})
    assert not review.has_rules(found)


def test_a_foreign_kind_named_like_the_internal_custom_kind_is_not_read() -> None:
    found = parsed({"spec": {"template": a_template("11")}}, kind=JOB_SET | {"kind": kinds.CUSTOM})
    assert not review.has_rules(found)


def test_a_kind_that_is_no_longer_listed_is_not_read() -> None:
    assert not review.has_rules(parsed(a_job(a_template("11")), listed=TemplateKinds(())))


def test_a_kind_that_an_admin_listed_is_read() -> None:
    listed = template_kinds.parse("example.com/Sweep: spec.tasks[*].template", "")
    sweep = {"group": "example.com", "version": "v1", "kind": "Sweep"}
    assert classes(parsed(a_job(a_template("3")), kind=sweep, listed=listed)) == ["3"]


def test_a_deletion_has_nothing_to_check() -> None:
    found = parsed(None, old=a_job(a_template("11")))
    assert not review.has_rules(found)


@pytest.mark.parametrize("document", ["text", 7, [1], {"spec": 7}, {"metadata": "x"}], ids=str)
def test_an_object_of_any_other_form_has_no_templates(document: object) -> None:
    body = json.dumps(a_review({}, kind=VOLCANO_JOB, object=document)).encode()
    found = review.parse(body)
    assert isinstance(found, AdmissionRequest)
    assert classes(found) == []


@pytest.mark.parametrize(
    "inside", [b'"\xff"', b"[" * 100_000, b"nope"], ids=["not UTF-8", "too deep", "not JSON"]
)
def test_invalid_json_is_reported(inside: bytes) -> None:
    body = (
        json.dumps(a_review(a_job(), kind=VOLCANO_JOB))
        .encode()
        .replace(b'"tasks": []', b'"tasks": ' + inside)
    )
    assert isinstance(review.parse(body), Malformed)


async def test_the_server_refuses_with_the_whole_path_and_without_duplicates() -> None:
    async with running_server() as server:
        refused = await server.ask("/validate", a_review(a_job(a_template("11")), kind=VOLCANO_JOB))
        assert refused["status"]["message"] == BAD
        bad = a_job(a_template("11"))
        assert (
            await server.ask("/validate", a_review(bad | {"status": {}}, old=bad, kind=VOLCANO_JOB))
        )["allowed"]
        assert (await server.ask("/mutate", a_review(bad, kind=VOLCANO_JOB)))["allowed"]
