"""What `docs/install-ways.md` has Argo CD and Flux install and ignore fits the chart and the base.

`tests/cluster/image/test_gitops.py` shows what the tools make of it.
"""

from typing import Any

import pytest
import yaml

from reprieve_testing import chart, manifests
from reprieve_testing.page_blocks import blocks

PAGE = {
    found["kind"]: found
    for text in blocks("docs/install-ways.md", "yaml")
    if "kind" in (found := yaml.safe_load(text))
}
NAME = ("ValidatingWebhookConfiguration", "reprieve-webhooks")
REPOSITORY = "REGISTRY/reprieve"


@pytest.mark.parametrize(
    ("values", "namespace"),
    [
        (
            PAGE["Application"]["spec"]["source"]["helm"]["valuesObject"],
            PAGE["Application"]["spec"]["destination"]["namespace"],
        ),
        (PAGE["HelmRelease"]["spec"]["values"], PAGE["HelmRelease"]["spec"]["targetNamespace"]),
    ],
    ids=["Argo CD", "Flux"],
)
def test_the_chart_takes_the_values_and_runs_the_image(
    values: dict[str, Any], namespace: str
) -> None:
    rendered = chart.render(values, namespace)
    pods = [each["spec"]["template"]["spec"] for each in rendered if each["kind"] == "Deployment"]
    images = {pod["containers"][0]["image"].partition(":")[0] for pod in pods}
    assert images == {REPOSITORY}


def test_a_kustomization_ignores_the_paths_of_the_guard_and_nothing_else() -> None:
    (rule,) = PAGE["Kustomization"]["spec"]["ignore"]
    assert (rule["target"]["kind"], rule["target"]["name"]) == NAME
    webhooks = manifests.named(*NAME)["webhooks"]
    guard = [
        f"/webhooks/{number}/clientConfig/service/path"
        for number, webhook in enumerate(webhooks)
        if webhook["clientConfig"]["service"]["path"] == "/guard"
    ]
    assert rule["paths"] == guard
