"""`reprieve check` where classes give priorities: PriorityClasses are those of the files."""

import json
from pathlib import Path

import pytest

from reprieve_testing import manifests
from reprieve_testing.check_command import run, write

SHIPPED = manifests.MANIFESTS / "components" / "class-priorities" / "priorityclasses.yaml"
PATH = "spec.template.spec.priorityClassName"
UNFIT = "does not fit class 6: must be above 1000 and below 3000"


def policy(setting: str) -> str:
    metadata = {"name": "reprieve-policy", "namespace": "reprieve-system"}
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"classPriorities": setting},
    }
    return json.dumps(document)


def job(priority_class: str = "") -> str:
    spec = {"containers": [{"name": "main", "image": "none"}], "restartPolicy": "Never"}
    if priority_class:
        spec["priorityClassName"] = priority_class
    template = {"metadata": {"labels": {"reprieve.dev/preemption-class": "6"}}, "spec": spec}
    return json.dumps(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j", "namespace": "team"},
            "spec": {"template": template},
        }
    )


OWN = json.dumps(
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "own"},
        "value": 10,
    }
)
NAMESPACE = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})

REFUSED = f'{PATH}: Invalid value: "own": its value 10 {UNFIT}, or unset'

CASES = {
    "refuse": (policy("refuse"), job("own"), 1, [f"error: Job team/j: {REFUSED}"]),
    "warn": (policy("warn"), job("own"), 0, [f"warning: Job team/j: {PATH}: 10 {UNFIT}"]),
    "off": (policy("off"), job("own"), 0, []),
    "a template that states no PriorityClass": (policy("refuse"), job(), 0, []),
}


@pytest.mark.parametrize("sentence", CASES)
def test_a_priority_that_contradicts_the_class(tmp_path: Path, sentence: str) -> None:
    configured, document, status, wanted = CASES[sentence]
    known = (
        write(tmp_path, "policy.json", configured),
        write(tmp_path, "namespace.json", NAMESPACE),
        write(tmp_path, "own.json", OWN),
        SHIPPED,
    )
    checked = run(*known, write(tmp_path, "job.json", document))
    assert checked.status == status
    assert [
        line.partition(":1: ")[2].removesuffix(" [class-priority]") for line in checked.lines
    ] == wanted


def test_a_class_whose_priority_class_is_in_no_file_is_not_judged(tmp_path: Path) -> None:
    files = {"policy": policy("refuse"), "namespace": NAMESPACE, "job": job()}
    checked = run(*(write(tmp_path, f"{name}.json", text) for name, text in files.items()))
    (line,) = checked.lines
    assert f'{PATH}: not evaluated without PriorityClass "reprieve-class-6"' in line
