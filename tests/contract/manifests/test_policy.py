"""The ConfigMap that admins edit states the defaults that hold without it."""

import re

import yaml

from reprieve_policy.config import settings
from reprieve_policy.config.settings import FIELDS, PolicySettings
from reprieve_testing import manifests

DATA = manifests.named("ConfigMap", "reprieve-policy")["data"]


def test_the_configmap_states_exactly_the_defaults() -> None:
    assert settings.parse(DATA) == PolicySettings()


def test_every_setting_is_in_the_configmap() -> None:
    text = (manifests.BASE / "policy.yaml").read_text()
    stated = set(re.findall(r"^  (?:# )?([a-z][a-zA-Z]+): ", text, re.MULTILINE))
    assert set(FIELDS) <= stated
    assert set(DATA) <= set(FIELDS)


def test_a_demonstrations_policy_can_be_read() -> None:
    (kustomization,) = manifests.read(
        manifests.MANIFESTS / "overlays" / "demo" / "kustomization.yaml"
    )
    (patch,) = kustomization["patches"]
    changed = settings.parse(DATA | yaml.safe_load(patch["patch"])["data"])
    assert isinstance(changed, PolicySettings)
    assert changed.ceiling_seconds <= 60


def test_the_agent_is_run_from_the_image_of_the_programs() -> None:
    images = {
        found["spec"]["template"]["spec"]["containers"][0]["image"]
        for found in manifests.of_kind("Deployment")
    }
    assert images == {PolicySettings().agent_image}
