"""Where the webhooks tell agents to report: never without the CA that signs their certificate."""

import base64

from reprieve_policy.checkpointing.agent import CheckpointService
from reprieve_webhooks.main import _checkpoint_service
from reprieve_webhooks.settings import Settings

CA = b"-----BEGIN CERTIFICATE-----\n"
BUNDLE = base64.b64encode(CA).decode()


def test_agents_report_to_the_service_of_the_webhooks() -> None:
    url = "https://reprieve-webhooks.reprieve-system.svc/checkpoints"
    assert _checkpoint_service(Settings(), CA) == CheckpointService(url, BUNDLE)
    other = Settings(namespace="other", service_name="ours")
    found = _checkpoint_service(other, CA)
    assert found is not None
    assert found.url == "https://ours.other.svc/checkpoints"


def test_an_admin_may_name_another_url_or_none() -> None:
    url = "https://10.0.0.1:9443/checkpoints"
    assert _checkpoint_service(Settings(checkpoint_url=url), CA) == CheckpointService(url, BUNDLE)
    assert _checkpoint_service(Settings(checkpoint_url="none"), CA) is None


def test_without_a_known_ca_agents_report_nothing() -> None:
    assert _checkpoint_service(Settings(), None) is None
