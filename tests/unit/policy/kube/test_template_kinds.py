"""Kinds of other projects: what an admin may list, and the templates found in any object."""

import pytest

from reprieve_policy.admission.review import decide_admission
from reprieve_policy.config import settings
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube import template_kinds
from reprieve_policy.kube.template_kinds import WELL_KNOWN, TemplateKinds
from reprieve_policy.verdict import Violation
from reprieve_testing.objects.builders import a_pod, a_policy_map

AT = "data[templateKinds]"
LIKE = 'must be lines like "example.com/Sweep: spec.trials[*].template"'


def listed(text: str) -> TemplateKinds:
    found = template_kinds.parse(text, AT)
    assert isinstance(found, TemplateKinds)
    return found


def places(document: object, *paths: str) -> list[str]:
    return [prefix for prefix, _ in template_kinds.find_templates(document, paths)]


def test_a_listed_kind_is_added_to_the_well_known_ones() -> None:
    found = listed("\n  example.com/Sweep: spec.trials[*].template , spec.final\n\n")
    assert found.paths_of("example.com", "Sweep") == ("spec.trials[*].template", "spec.final")
    assert found.paths_of("jobset.x-k8s.io", "JobSet") == (
        "spec.replicatedJobs[*].template.spec.template",
    )
    assert found.paths_of("example.com", "JobSet") is None
    assert found.paths_of("scheduling.x-k8s.io", "PodGroup") == ()


def test_a_well_known_kind_that_is_listed_has_other_paths() -> None:
    found = listed("batch.volcano.sh/Job: spec.parts[*].template")
    assert found.paths_of("batch.volcano.sh", "Job") == ("spec.parts[*].template",)
    assert len(found.rows) == len(WELL_KNOWN.rows)


BAD = {
    "no path": "example.com/Sweep:",
    "no group": "Sweep: spec.template",
    "no kind": "example.com/: spec.template",
    "a plural": "example.com/sweeps: spec.template",
    "a path with an index": "example.com/Sweep: spec.trials[0].template",
    "an empty field": "example.com/Sweep: spec..template",
    "a path without end": f"example.com/Sweep: {'.'.join(['spec'] * 13)}",
    "a line without end": "example.com/Sweep: " + ", ".join(["spec.template"] * 1000),
    "a list without commas": "example.com/Sweep: spec.a spec.b",
}


@pytest.mark.parametrize("line", BAD.values(), ids=BAD)
def test_an_invalid_line_is_refused_and_shown(line: str) -> None:
    found = template_kinds.parse(f"example.com/Good: spec.template\n{line}", AT)
    assert isinstance(found, Violation)
    assert (found.value, found.detail) == (line.strip(), LIKE)


def test_a_built_in_kind_may_not_be_listed() -> None:
    found = template_kinds.parse("apps/Deployment: spec.template", AT)
    assert isinstance(found, Violation)
    assert found.detail == "must not be Deployment of apps, which is read without being listed"


def test_too_many_kinds_are_refused() -> None:
    found = template_kinds.parse(
        "\n".join(f"example.com/Kind{index}: spec.template" for index in range(200)), AT
    )
    assert isinstance(found, Violation)
    assert found.detail == f"must be at most {100 - len(WELL_KNOWN.rows)} kinds"


def test_an_invalid_list_is_refused_with_the_policy() -> None:
    (found,) = decide_admission(
        a_policy_map(templateKinds="apps/Deployment: spec"), None, Facts()
    ).violations
    assert (found.path, found.rule) == (AT, "policy-config")


JOB_SET = {
    "spec": {
        "replicatedJobs": [
            {
                "name": "driver",
                "template": {"spec": {"template": {"metadata": {"labels": {"a": "1"}}}}},
            },
            {
                "name": "workers",
                "template": {"spec": {"template": {"metadata": {"labels": {"a": "2"}}}}},
            },
        ]
    }
}


def test_each_item_of_a_list_is_found_and_named() -> None:
    (path,) = WELL_KNOWN.paths_of("jobset.x-k8s.io", "JobSet")
    assert places(JOB_SET, path) == [
        "spec.replicatedJobs[0].template.spec.template.",
        "spec.replicatedJobs[1].template.spec.template.",
    ]


def test_each_value_of_a_map_is_found_and_named() -> None:
    job = {
        "spec": {"pytorchReplicaSpecs": {"Master": {"template": {}}, "Worker": {"template": {}}}}
    }
    assert places(job, *WELL_KNOWN.paths_of("kubeflow.org", "PyTorchJob")) == [
        "spec.pytorchReplicaSpecs[Master].template.",
        "spec.pytorchReplicaSpecs[Worker].template.",
    ]


def test_a_key_that_would_not_fit_in_a_line_is_shown_shortened() -> None:
    job = {"spec": {"pytorchReplicaSpecs": {"Worker\n" + "x" * 500: {"template": {}}}}}
    (shown,) = places(job, "spec.pytorchReplicaSpecs[*].template")
    assert shown.isprintable()
    assert len(shown) < 120


FORMS = [
    None,
    "spec",
    7,
    [],
    {},
    {"spec": None},
    {"spec": []},
    {"spec": "x"},
    {"spec": {"tasks": None}},
]
FORMS += [
    {"spec": {"tasks": "abc"}},
    {"spec": {"tasks": [None, 1, "x", []]}},
    {"spec": {"tasks": [{"template": "x"}]}},
]


@pytest.mark.parametrize("document", FORMS, ids=str)
def test_in_an_object_of_another_form_no_template_is_found(document: object) -> None:
    assert places(document, "spec.tasks[*].template") == []


def test_only_a_limited_part_of_a_huge_object_is_read() -> None:
    job = {"spec": {"tasks": [{"template": {}} for _ in range(1000)]}}
    assert len(places(job, "spec.tasks[*].template")) == template_kinds.MAX_TEMPLATES


def test_a_template_of_a_listed_kind_is_checked_and_named_by_its_whole_path() -> None:
    (found,) = decide_admission(a_pod().in_class(11).in_listed_kind(), None, Facts()).violations
    assert str(found) == (
        "spec.jobs[0].template.metadata.labels[reprieve.dev/preemption-class]: "
        'Invalid value: "11": must be between 0 and 10, in plain digits'
    )


def test_policies_with_and_without_listed_kinds_have_the_same_hash() -> None:
    one, other = settings.parse({"templateKinds": "example.com/A: spec.a"}), PolicySettings()
    assert hash(one) == hash(other)
    assert one != other
