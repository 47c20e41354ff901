"""Slips that the API server drops or refuses before admission, found in what was written."""

from typing import Any

import pytest

from reprieve_policy.admission import manifest_form

DROPPED = "Forbidden: the field is {0}: the API server drops one that it does not know"

CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an object without fields": ({"kind": "Pod"}, []),
    "metadata that is not a mapping is left to the decoder": ({"kind": "Pod", "metadata": []}, []),
    "maps that are absent, null and empty": (
        {"kind": "Pod", "metadata": {"labels": None, "annotations": {}}},
        [],
    ),
    "strings, and null, which is an empty string": (
        {"kind": "Pod", "metadata": {"labels": {"a": "4", "b": None}}},
        [],
    ),
    "other fields of the metadata are left to the decoder": (
        {"kind": "Pod", "metadata": {"name": "a", "generation": "1"}},
        [],
    ),
    "annotation for annotations": (
        {"kind": "Pod", "metadata": {"annotation": {"a": "b"}}},
        ["metadata.annotation: " + DROPPED.format("annotations")],
    ),
    "label for labels, in a template": (
        {"kind": "Deployment", "metadata": {}, "spec": {"template": {"metadata": {"label": {}}}}},
        ["spec.template.metadata.label: " + DROPPED.format("labels")],
    ),
    "a template that is no mapping": ({"kind": "Job", "spec": {"template": "x"}}, []),
    "a spec that is no mapping": ({"kind": "Job", "spec": []}, []),
    "in each of several templates": (
        {
            "spec": {
                "tasks": [
                    {"metadata": {"label": {}}},
                    {"metadata": {}},
                    {"metadata": {"Annotations": {}}},
                ]
            }
        },
        [
            "spec.tasks[0].metadata.label: " + DROPPED.format("labels"),
            "spec.tasks[2].metadata.Annotations: " + DROPPED.format("annotations"),
        ],
    ),
    "a class that is a number": (
        {"kind": "Pod", "metadata": {"labels": {"reprieve.dev/preemption-class": 4}}},
        [
            (
                'metadata.labels[reprieve.dev/preemption-class]: Invalid value: "4": '
                'must be a string: "4"'
            )
        ],
    ),
    "a boolean": (
        {"kind": "Pod", "metadata": {"annotations": {"a": True}}},
        ['metadata.annotations[a]: Invalid value: "true": must be a string: "true"'],
    ),
    "a mapping as a value": (
        {"kind": "Pod", "metadata": {"annotations": {"a": {"b": "c"}, "d": ["e"]}}},
        [
            'metadata.annotations[a]: Invalid value: "{…}": must be a string',
            'metadata.annotations[d]: Invalid value: "[…]": must be a string',
        ],
    ),
    "a list as labels": (
        {"kind": "Pod", "metadata": {"labels": ["a"]}},
        ['metadata.labels: Invalid value: "[…]": must be a mapping of keys to strings'],
    ),
    "a kind that is no text": (
        {"kind": [], "metadata": {"label": {}}},
        ["metadata.label: " + DROPPED.format("labels")],
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_fields_that_the_api_server_drops_or_refuses_are_violations(sentence: str) -> None:
    document, want = CASES[sentence]
    violations = manifest_form.check_form(document, ("spec.template", "spec.tasks[*]"))
    assert [str(violation) for violation in violations] == want
    assert {violation.rule for violation in violations} <= {manifest_form.RULE}
