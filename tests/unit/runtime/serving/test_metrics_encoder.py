"""A scraper's `Accept` chooses the format of the metrics, and none makes the answer an error."""

import pytest

from reprieve_runtime.serving import metrics_port

OPEN_METRICS = "application/openmetrics-text"


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain"),
        (f"{OPEN_METRICS}; version=1.0.0", OPEN_METRICS),
        (f"{OPEN_METRICS}; version=1.x", "text/plain"),
        (f"{OPEN_METRICS}; version={'1' * 5000}", "text/plain"),
    ],
    ids=["none", "OpenMetrics", "a version that is no number", "a very long version"],
)
def test_a_version_that_cannot_be_read_gets_the_usual_format(
    accept: str, content_type: str
) -> None:
    assert metrics_port._encoder(accept)[1].startswith(content_type)
