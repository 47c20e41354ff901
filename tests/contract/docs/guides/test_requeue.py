"""docs/requeue.md agrees with the code about replacements."""

import re
from pathlib import Path

import yaml

from reprieve_policy import keys
from reprieve_policy.lifecycle import bare_pod, replacement_annotations
from reprieve_policy.lifecycle.replacement_annotations import EnvironmentVariable
from reprieve_testing import manifests

PAGE = (Path(__file__).parents[4] / "docs" / "requeue.md").read_text(encoding="utf-8")


def test_each_annotation_stands_beside_its_variable() -> None:
    assert (
        dict(re.findall(r"^\| `(reprieve\.dev/[a-z-]+)` \| `([A-Z_]+)` \|", PAGE, re.MULTILINE))
        == replacement_annotations.ENVIRONMENT
    )


def test_the_reference_to_write_by_hand_is_the_one_that_the_webhook_adds() -> None:
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    key = keys.RESUME_FROM_CHECKPOINT
    assert yaml.safe_load(shown)["env"] == [
        EnvironmentVariable(replacement_annotations.ENVIRONMENT[key], key).to_env_entry()
    ]


def test_the_limits_for_bare_pods_are_the_documented_ones() -> None:
    kib, of_one, in_all = (
        bare_pod.MAX_BYTES // 1024,
        bare_pod.MAX_RECORDS_OF_NAMESPACE,
        bare_pod.MAX_RECORDS,
    )
    assert f"at most {kib} KiB each, {of_one} of one Namespace, {in_all:,} in all" in " ".join(
        PAGE.split()
    )


def test_the_example_grants_the_operator_no_more_than_bare_pods_in_one_namespace() -> None:
    (binding,) = manifests.read(manifests.EXAMPLES / "bare-pods.yaml")
    assert (binding["kind"], binding["roleRef"]["name"]) == ("RoleBinding", "reprieve-bare-pods")
    role = manifests.named("ClusterRole", "reprieve-bare-pods")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
