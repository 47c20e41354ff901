"""docs/native.md agrees with the code about the native types: names, numbers and defaults."""

import re

from reprieve_operator.cluster.event_recorder import REASONS
from reprieve_operator.settings import OperatorSettings
from reprieve_policy import keys
from reprieve_policy.config.settings import FIELDS
from reprieve_policy.eviction_requests import objects, responder
from reprieve_policy.kube import duration
from reprieve_policy.lifecycle.eviction import Source
from reprieve_testing import manifests
from reprieve_webhooks.facts.discovery import TTL_SECONDS

PAGE = " ".join((manifests.ROOT / "docs" / "native.md").read_text(encoding="utf-8").split())


def test_every_event_setting_and_key_on_the_page_exists() -> None:
    assert set(re.findall(r"Event on the ConfigMap \(`([A-Za-z]+)`\)", PAGE)) <= REASONS.keys()
    assert "evictionResponder" in FIELDS
    assert keys.EVICTION_REQUEST in PAGE
    assert f"`source: {Source.EVICTION_REQUEST}`" in PAGE


def test_the_page_shows_the_responder_that_pods_get() -> None:
    assert f"{{name: {objects.RESPONDER_NAME}, priority: {objects.RESPONDER_PRIORITY}}}" in PAGE


def test_the_times_on_the_page_are_those_of_the_code() -> None:
    assert f"every {responder.MAX_HEARTBEAT_INTERVAL.seconds // 60} minutes" in PAGE
    assert f"{responder.MIN_HEARTBEAT_INTERVAL.seconds} seconds after the last" in PAGE
    assert duration.render(int(OperatorSettings().sweep_interval_seconds)) == "5m"
    assert "within five minutes by the operator" in PAGE
    assert TTL_SECONDS == 30
    assert "within half a minute by the webhooks" in PAGE
