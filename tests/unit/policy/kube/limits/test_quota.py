"""Which ElasticQuota a pod uses, and what is known of it."""

import json
from dataclasses import replace

import pytest

from reprieve_policy import keys
from reprieve_policy.kube.limits import quota
from reprieve_policy.kube.limits.quota import Quota, Quotas
from reprieve_policy.kube.objects import ObjectMeta
from reprieve_policy.kube.values.quantity import NANOS
from reprieve_testing.objects.builders import a_quota

GPU = {keys.QUOTA_NAME: "gpu"}

QUOTAS = {
    "a named quota is used, in whatever namespace it is": (
        [a_quota("gpu", "admin")],
        GPU,
        "admin/gpu",
    ),
    "of two quotas of a name, the one in the pod's Namespace": (
        [a_quota("gpu", "admin"), a_quota("gpu", "team")],
        GPU,
        "team/gpu",
    ),
    "of two quotas of a name in other Namespaces, always the same": (
        [a_quota("gpu", "b"), a_quota("gpu", "a")],
        GPU,
        "a/gpu",
    ),
    "a named quota takes precedence over the namespace's": (
        [a_quota("team", "team"), a_quota("gpu", "admin")],
        GPU,
        "admin/gpu",
    ),
    "an unknown quota becomes the default quota": (
        [a_quota("team", "team"), a_quota(quota.DEFAULT, "admin")],
        GPU,
        f"admin/{quota.DEFAULT}",
    ),
    "an unknown quota without a default quota": (
        [a_quota("team", "team")],
        GPU,
        None,
    ),
    "an empty name counts as no name": (
        [a_quota("team", "team")],
        {keys.QUOTA_NAME: ""},
        "team/team",
    ),
    "without a name, the quota named like the Namespace": (
        [a_quota("team", "team"), a_quota("other", "team")],
        {},
        "team/team",
    ),
    "without a name, the quota that lists the Namespace": (
        [a_quota("shared", "admin", "a", "team")],
        {},
        "admin/shared",
    ),
    "another quota in the Namespace is not used": ([a_quota("gpu", "team")], {}, None),
    "without any other, the default quota": (
        [a_quota(quota.DEFAULT, "admin")],
        {},
        f"admin/{quota.DEFAULT}",
    ),
    "no quotas": ([], GPU, None),
}


@pytest.mark.parametrize(("known", "labels", "want"), QUOTAS.values(), ids=QUOTAS)
def test_a_pods_quota_is_found_as_koordinator_finds_it(
    known: list[Quota], labels: dict[str, str], want: str | None
) -> None:
    found = Quotas(known).find(labels, "team")
    assert (f"{found.namespace}/{found.name}" if found else None) == want


def test_a_deleted_quota_is_not_found() -> None:
    quotas = Quotas(
        [a_quota("team", "team"), a_quota("shared", "admin", "team"), a_quota("shared", "other")]
    )
    for key in (("team", "team"), ("admin", "shared"), ("admin", "shared")):
        quotas.remove(key)
    assert quotas.find({}, "team") is None
    assert quotas.find({keys.QUOTA_NAME: "shared"}, "team") == a_quota("shared", "other")


def test_a_changed_quota_is_found_in_its_new_state() -> None:
    quotas = Quotas([a_quota("shared", "admin", "team", "before")])
    quotas.put(replace(a_quota("shared", "admin", "team"), used={"cpu": 1}))
    found = quotas.find({}, "team")
    assert found is not None
    assert found.used == {"cpu": 1}
    assert quotas.find({}, "before") is None


def test_changes_of_amounts_are_not_counted_and_those_of_namespaces_are() -> None:
    quotas = Quotas([a_quota("shared", "admin", "team")])
    before = quotas.changes
    quotas.put(replace(a_quota("shared", "admin", "team"), used={"cpu": 1}))
    quotas.remove(("admin", "never-was"))
    assert quotas.changes == before
    quotas.put(a_quota("shared", "admin", "team", "other"))
    assert quotas.changes == before + 1
    quotas.remove(("admin", "shared"))
    assert quotas.changes == before + 2


def metadata(**annotations: str) -> ObjectMeta:
    by_key = {getattr(keys, name.upper()): text for name, text in annotations.items()}
    return ObjectMeta(name="gpu", namespace="team", annotations=by_key)


def test_koordinators_status_and_annotations_are_read() -> None:
    said = metadata(
        non_preemptible_used='{"cpu":"2","memory":"1Gi"}',
        non_preemptible_request='{"cpu":3}',
        quota_namespaces='["a","b"]',
    )
    found = quota.read_leniently(said, {"cpu": "4"}, {"cpu": "8"}, {"cpu": "6500m"})
    assert found == Quota(
        namespace="team",
        name="gpu",
        min_amounts={"cpu": 4 * NANOS},
        max_amounts={"cpu": 8 * NANOS},
        used={"cpu": 13 * NANOS // 2},
        non_preemptible_used={"cpu": 2 * NANOS, "memory": 2**30 * NANOS},
        non_preemptible_request={"cpu": 3 * NANOS},
        namespaces=("a", "b"),
        tells_non_preemptible=True,
    )


def test_a_quota_without_koordinators_annotations_tells_nothing_of_non_preemptible_pods() -> None:
    found = quota.read_leniently(metadata(), {"cpu": "4"}, {"cpu": "8"}, {"cpu": "2"})
    assert not found.tells_non_preemptible


UNREADABLE = [
    "",
    "{",
    "[]",
    "null",
    "7",
    '{"cpu":[]}',
    '{"cpu":"many"}',
    "[" * 9000,
    '{"a":' * 5000,
    "9" * 5000,
]


@pytest.mark.parametrize("text", [*UNREADABLE, '{"cpu":"1"}' + " " * 70_000])
def test_an_unreadable_value_counts_as_absent(text: str) -> None:
    found = quota.read_leniently(
        metadata(non_preemptible_used=text, quota_namespaces=text), {"cpu": "x"}, {}, {}
    )
    assert found == a_quota("gpu", "team")


def test_names_that_are_not_strings_are_ignored() -> None:
    assert quota.read_leniently(
        metadata(quota_namespaces='["a",7,null]'), {}, {}, {}
    ).namespaces == ("a",)


def test_the_memory_of_a_quota_is_bounded() -> None:
    many = {f"resource-{number}": "1" for number in range(5000)}
    found = quota.read_leniently(
        metadata(quota_namespaces=json.dumps([*many][:3000])), many, many, many
    )
    assert (
        max(len(found.min_amounts), len(found.max_amounts), len(found.used), len(found.namespaces))
        == 1000
    )


def test_an_object_without_names_causes_no_error() -> None:
    assert quota.read_leniently(ObjectMeta(), {}, {}, {}).key == ("", "")
