"""A further worker has the settings of the first one, however those were given."""

from pathlib import Path

import msgspec

from reprieve_webhooks.settings import Settings, from_message, to_message


def test_a_message_has_all_settings() -> None:
    for settings in (
        Settings(),
        Settings(
            workers=3,
            cert_dir=Path("/certificates"),
            extender=True,
            extender_schedulers=(),
            client_names=("one", "two"),
            metrics_authentication="none",
        ),
    ):
        encoded = msgspec.msgpack.encode(to_message(settings))
        assert from_message(msgspec.msgpack.decode(encoded)) == settings
