"""What a command in a container came to, as the API server passes it on from the kubelet."""

from reprieve_runtime.client import podexec


def test_a_status_with_very_many_levels_cannot_be_read() -> None:
    """Without this, a compromised kubelet would have the caller fail with another error."""
    text = b'{"x": ' + b"[" * 3000 + b"]" * 3000 + b"}"
    result = podexec._parse_status(text)
    assert (result.exit_code, result.message) == (None, "the status of the command cannot be read")
