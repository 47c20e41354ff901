"""`reprieve audit` on a stub API server: refused credentials, kinds of other projects."""

from pathlib import Path

import pytest

from reprieve_cli.cluster.cluster import ClusterReader
from reprieve_cli.cluster.connection import describe_error
from reprieve_cli.commands.audit import Audit
from reprieve_cli.output.formats.report import TableReport
from reprieve_policy import keys
from reprieve_policy.kube.kinds import CUSTOM
from reprieve_policy.kube.template_kinds import TemplateKind, TemplateKinds
from reprieve_runtime.client.api import ApiError
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
