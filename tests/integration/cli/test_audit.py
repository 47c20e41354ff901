"""`reprieve audit` on a stub API server: refused credentials, kinds of other projects."""

from pathlib import Path
from typing import Any

import pytest

from reprieve_cli.cluster.cluster import ClusterReader, Collection
from reprieve_cli.cluster.connection import describe_error
from reprieve_cli.commands.audit import Audit
from reprieve_cli.output.formats.report import TableReport
from reprieve_policy import keys
from reprieve_policy.kube.kinds import CUSTOM
from reprieve_policy.kube.objects import TemplatedResource
from reprieve_policy.kube.pods import Pod
from reprieve_policy.kube.template_kinds import TemplateKind, TemplateKinds
from reprieve_runtime.client.api import ApiError
from reprieve_testing.servers import deep_json
from reprieve_testing.servers.stub_api import stub_api


async def test_expired_credentials_end_the_audit_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with stub_api(tmp_path) as (stub, api):
        stub.lists_released.set()
        stub.is_logged_out = True
        with pytest.raises(ApiError) as raised:
            await Audit(TableReport(), "", is_strict=False).run(api)
        assert sum(stub.calls.values()) == 1
    assert describe_error(raised.value).startswith("the API server refused your credentials (401")
    # Until now: "unreadable: /api/v1/namespaces: Unauthorized" for each of 31 paths.
    assert capsys.readouterr().err == ""


async def test_a_pod_group_of_another_project_is_not_read_as_a_native_one(tmp_path: Path) -> None:
    group, version = "scheduling.x-k8s.io", "scheduling.x-k8s.io/v1alpha1"
    said = {keys.DISRUPTION_MODE: "pod"}
    one = {"apiVersion": version, "kind": "PodGroup", "metadata": {"annotations": said}}
    served = {
        "/apis": {group: {"preferredVersion": {"groupVersion": version}}},
        f"/apis/{group}": {"v1alpha1": {"resources": [{"name": "podgroups", "kind": "PodGroup"}]}},
        f"/apis/{version}/podgroups": {"train": one},
    }
    async with stub_api(tmp_path, collections=served) as (stub, api):
        stub.lists_released.set()
        reader = ClusterReader(api, "", pytest.fail)
        listed = TemplateKinds((TemplateKind(group, "PodGroup", ()),))
        (collection,) = [found async for found in reader.custom_collections(listed)]
        ((found,),) = [page async for page in reader.pages(collection)]
        assert (found.kind, found.metadata.annotations) == (CUSTOM, said)


async def test_very_deep_objects_are_read_and_hide_no_others(tmp_path: Path) -> None:
    group, version = "ray.io", "ray.io/v1"
    template = {"metadata": {"labels": {keys.PREEMPTION_CLASS: "11"}}}
    ray: dict[str, Any] = {
        "apiVersion": version,
        "kind": "RayJob",
        "metadata": {"name": "ray", "namespace": "team"},
        "spec": {"template": template},
    }
    pod: dict[str, Any] = {"metadata": {"name": "p", "namespace": "team"}}
    broken = {"metadata": {"name": "broken", "namespace": "team"}, "spec": 5}
    deepened = deep_json.deepened
    served = {
        "/apis": {group: {"preferredVersion": {"groupVersion": version}}},
        f"/apis/{group}": {"v1": {"resources": [{"name": "rayjobs", "kind": "RayJob"}]}},
        f"/apis/{version}/rayjobs": {"ray": deepened(ray)},
        "/api/v1/pods": {"p": deepened(pod), "broken": deepened(broken), "q": pod},
    }
    reported: list[str] = []
    async with stub_api(tmp_path, collections=served) as (stub, api):
        stub.lists_released.set()
        reader = ClusterReader(api, "", reported.append)
        listed = TemplateKinds((TemplateKind(group, "RayJob", ("spec.template",)),))
        (collection,) = [found async for found in reader.custom_collections(listed)]
        ((found,),) = [page async for page in reader.pages(collection)]
        assert isinstance(found, TemplatedResource)
        assert [read.metadata.labels for _, read in found.templates if read.metadata] == [
            template["metadata"]["labels"]
        ]
        assert reported == []
        (pods,) = [page async for page in reader.pages(Collection("Pod", "/api/v1/pods"))]
        assert [each.metadata.name for each in pods] == ["p", "p"]
        assert [each.partition(": Expected")[0] for each in reported] == [
            "/api/v1/pods: team/broken"
        ]
        each_read: list[Pod] = []
        await reader.read_each("/api/v1/pods", Pod, each_read.append)
        assert [each.metadata.name for each in each_read] == ["p", "p"]
