"""Any file yields objects or reasons why it cannot be read, never an exception."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reprieve_cli.checking.checker import check_manifest
from reprieve_cli.checking.known_objects import KnownObjects
from reprieve_cli.manifests import documents, manifest_objects
from reprieve_cli.manifests.sources import Unreadable
from reprieve_policy import keys
from reprieve_policy.kube.kinds import KINDS

KEYS = st.sampled_from(
    ["metadata", "spec", "template", "jobTemplate", "labels", "annotations", "label", "name",
     "namespace", "priority", "priorityClassName", "containers", "resources", "requests", "cpu",
     "value", "data", "items", "replicatedJobs", keys.PREEMPTION_CLASS, keys.CHECKPOINT_HINT,
     keys.PREEMPTION_PRIORITY_CLASS, keys.PREEMPTIBLE],
)  # fmt: skip
API_VERSIONS = sorted(
    {f"{row.group}/{version}".lstrip("/") for row in KINDS.values() for version in row.versions}
)


def objects(texts: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | texts
    values: st.SearchStrategy[Any] = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
        max_leaves=20,
    )
    types = {
        "apiVersion": st.sampled_from([*API_VERSIONS, "jobset.x-k8s.io/v1alpha2"]),
        "kind": st.sampled_from([*KINDS, "List", "PodList", "JobSet"]),
    }
    fields = ("metadata", "spec", "items", "data", "value", "globalDefault")
    return st.fixed_dictionaries(types, optional=dict.fromkeys(fields, values))


YAML = st.text(alphabet="ab:-[]{}&*!|>'\"#%@,?~ \t\n\r0<\\\x00\ufeff\x85", max_size=60)


def checked(text: str, name: str) -> list[str]:
    """Read and check a file as `reprieve check` does; return the messages."""
    known_objects, messages, found = KnownObjects(), [], []
    for item in documents.read(name, text):
        if isinstance(item, Unreadable):
            assert item.line >= 1
            messages.append(item.reason)
        else:
            found.append((item[0], manifest_objects.build(item[1])))
    for _, item in found:
        known_objects.add(item)
    for document, item in found:
        for finding in check_manifest(item, document, known_objects):
            assert 1 <= finding.line <= text.count("\n") + 1
            messages.append(finding.text)
    return messages


@given(st.lists(objects(st.text(max_size=8)), max_size=3))
def test_any_objects_can_be_checked(found: list[Any]) -> None:
    text = "\n".join(json.dumps(document) for document in found)
    assert all(isinstance(message, str) for message in checked(text, "a.json"))


# YAML has no escape for half of a surrogate pair, and no control characters.
@given(objects(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8)))
def test_an_object_has_the_same_findings_in_json_and_in_yaml(document: Any) -> None:
    text = json.dumps(document, indent=1).replace("NaN", "0").replace("Infinity", "1")
    as_json, as_yaml = checked(text, "a.json"), checked("---\n" + text, "a.yaml")
    assert as_json == as_yaml


@given(YAML)
def test_any_text_is_read_as_yaml_or_reported(text: str) -> None:
    checked(text, "a.yaml")


@given(st.text(alphabet='{}[]":,\\u0d8 \n\t1e+-.ntfalsxyz', max_size=60))
def test_any_text_is_read_as_json_or_reported(text: str) -> None:
    checked(text, "a.json")
