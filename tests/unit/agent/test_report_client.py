"""What the agent reads in a response."""

import pytest

from reprieve_agent import report_client
from reprieve_agent.report_call import ReportResult

CASES = {
    "a report that was taken": (
        b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{"a":1}',
        ReportResult(200, '{"a":1}'),
    ),
    "a refusal with a time": (
        b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 8\r\n\r\nlater\n",
        ReportResult(429, "later", 8),
    ),
    "a date instead of seconds": (
        b"HTTP/1.1 503 X\r\nRetry-After: Mon, 23 Nov 2026 20:00:00 GMT\r\n\r\n",
        ReportResult(503, ""),
    ),
    "a wait without end": (
        b"HTTP/1.1 503 X\r\nRetry-After: 99999999\r\n\r\n",
        ReportResult(503, ""),
    ),
    "a long page": (b"HTTP/1.1 502 X\r\n\r\n" + b"x" * 4000, ReportResult(502, "x" * 200)),
    "nothing": (b"", ReportResult(0, "no HTTP response")),
    "another protocol": (b"SSH-2.0-x 200 OK\r\n\r\n", ReportResult(0, "no HTTP response")),
    "no status": (b"HTTP/1.1 OK\r\n\r\n", ReportResult(0, "no HTTP response")),
}


@pytest.mark.parametrize(("received", "result"), CASES.values(), ids=CASES)
def test_a_response_is_read(received: bytes, result: ReportResult) -> None:
    assert report_client.parse(received) == result
    assert result.is_success == (result.status == 200)
