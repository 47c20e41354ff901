"""What an object's metadata says of itself."""

import pytest

from reprieve_policy.kube.objects import VersionedMeta


def test_logs_name_an_object_by_its_namespace_and_its_name() -> None:
    assert VersionedMeta(namespace="team", name="train-0").key == "team/train-0"


@pytest.mark.parametrize(("text", "version"), [("7", 7), ("", 0), ("7a", 0), ("-1", 0)])
def test_a_resource_version_that_is_no_number_is_older_than_any(text: str, version: int) -> None:
    assert VersionedMeta(resourceVersion=text).version == version
