"""The client library that answers by annotation, beside an API server that can be away."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve_client.exchange import Exchange
from reprieve_client.hints import annotation
from reprieve_client.hints.annotation import AnnotationHint
from reprieve_policy.checkpointing.contract import AnswerState
from reprieve_testing.cluster.handle import wait_for
from reprieve_testing.servers.pod_api import LOOPBACK, PodApi


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PodApi]:
    server = PodApi(tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", LOOPBACK)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    yield server
    server.stop()


@pytest.fixture
def exchange() -> Exchange:
    return Exchange()


@pytest.fixture
def hint(api: PodApi, exchange: Exchange, tmp_path: Path) -> Iterator[AnnotationHint]:
    assert api.port
    (tmp_path / "request").write_text(
        ""
    )  # as the downward API shows an annotation that is not there
    opened = AnnotationHint(exchange, tmp_path / "request", "pod-1", account=tmp_path)
    opened.open()
    yield opened
    opened.close()


@pytest.mark.usefixtures("hint")
def test_the_answer_is_an_annotation_of_the_own_pod(
    api: PodApi, exchange: Exchange, tmp_path: Path
) -> None:
    (tmp_path / "request").write_text('{"id":"uid-1","attempt":1}')
    wait_for("an answer", lambda: api.answers)
    (tmp_path / "token").write_text("renewed")
    exchange.report("saved", step=7)
    wait_for("two answers", lambda: len(api.answers) == 2)
    assert [answer.state for answer in api.answers] == [AnswerState.ACCEPTED, AnswerState.SAVED]
    assert {answer.eviction_id for answer in api.answers} == {"uid-1"}
    assert [path for path, *_ in api.patches] == ["/api/v1/namespaces/team/pods/pod-1"] * 2
    tokens = [headers["Authorization"] for _, headers, _ in api.patches]
    assert tokens == ["Bearer first", "Bearer renewed"]


def test_an_answer_that_is_refused_is_sent_again_and_delays_no_step(
    api: PodApi,
    exchange: Exchange,
    hint: AnnotationHint,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(annotation, "RETRY_SECONDS", 0.01)
    api.status = 403
    (tmp_path / "request").write_text('{"id":"uid-1"}')
    wait_for("a request to the API", lambda: api.requests)
    exchange.report("saved", step=7)
    api.status = 200
    wait_for("an answer", lambda: api.answers)
    hint.close()
    assert api.answers[-1].state is AnswerState.SAVED
    assert 'answer not sent yet: 403 Forbidden: {"message":"not for you"}' in caplog.text


def test_the_last_answer_is_sent_as_the_program_ends(
    api: PodApi, exchange: Exchange, hint: AnnotationHint, tmp_path: Path
) -> None:
    (tmp_path / "request").write_text('{"id":"uid-1"}')
    wait_for("a request", lambda: exchange.pending)
    exchange.report("saved", step=7)
    hint.close()
    assert api.answers[-1].state is AnswerState.SAVED


def test_a_pod_that_does_not_know_its_name_is_told_at_the_start(exchange: Exchange) -> None:
    with pytest.raises(ValueError, match="POD_NAME is required"):
        AnnotationHint(exchange, Path("request"), "")
