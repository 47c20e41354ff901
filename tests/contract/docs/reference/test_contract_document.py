"""The contract's document agrees with the code: documents, states, hints, names and places."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from reprieve_agent import report_schedule, request_files
from reprieve_policy import keys
from reprieve_policy.admission import sidecar
from reprieve_policy.checkpointing import agent, checkpoint_plan, contract
from reprieve_policy.checkpointing.checkpoint_plan import CheckpointPlan
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer, CheckpointRequest
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.objects import Resource, pod_views
from reprieve_policy.verdict import Violation
from reprieve_testing import manifests

TEXT = (manifests.ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
DOCUMENTS = [
    json.loads(text) for text in re.findall(r"^```json\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
]
REQUEST, CANCELLED, ANSWER = DOCUMENTS
CARRIERS = "`reprieve.dev/checkpoint-hint`"
"""The heading of the table of carriers."""


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table whose first row starts so."""
    table = TEXT[TEXT.index(f"\n| {heading} |") :].split("\n\n")[0].strip()
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]
    ]


def test_the_version_is_that_of_the_code() -> None:
    assert TEXT.startswith(f'# The contract "checkpoint now", version {contract.VERSION}\n')


def test_the_request_is_as_shown_and_every_field_is_explained() -> None:
    request = CheckpointRequest(
        eviction_id="8d3ea5e0-1795262400",
        attempt=1,
        deadline=datetime(2026, 11, 21, 12, 10, tzinfo=UTC),
        reason="node drain",
        preemption_class=4,
        may_extend=True,
    )
    assert json.loads(contract.render_request(request)) == REQUEST
    assert [cell for cell, *_ in rows("field")] == [f"`{name}`" for name in REQUEST]
    assert json.loads(contract.render_cancelled(request.eviction_id)) == CANCELLED


def test_the_answer_is_read_as_shown() -> None:
    answer = contract.parse_answer(json.dumps(ANSWER), "answer")
    assert isinstance(answer, CheckpointAnswer)
    assert (answer.state, answer.step, answer.path) == (
        AnswerState.SAVED,
        1200,
        "/checkpoints/1200",
    )
    assert answer.may_belong_to(REQUEST["id"])


def test_every_state_and_every_field_of_an_answer_is_explained() -> None:
    assert {cell for cell, *_ in rows("`state`")} == {f"`{state}`" for state in AnswerState}
    fields = {cell.strip("`") for cell, *_ in rows("other field")}
    for field in fields:
        wrong = contract.parse_answer(json.dumps({"state": "saved", field: [1]}), "answer")
        assert isinstance(wrong, Violation)
    assert fields == {"id", "step", "path", "progress", "deferSeconds", "message"}


def test_every_carrier_is_shown_with_a_hint_that_can_be_read() -> None:
    shown = [checkpoint_plan.parse_hint(cell.strip("`"), "") for cell, *_ in rows(CARRIERS)]
    assert {type(hint) for hint in shown} == set(checkpoint_plan.Hint.__args__)


@pytest.mark.parametrize(
    ("hint", "examples"), [(hint, examples) for hint, *_, examples in rows(CARRIERS)]
)
def test_every_carrier_is_shown_with_an_example_that_declares_it(hint: str, examples: str) -> None:
    places = [manifests.ROOT / path for path in re.findall(r"`([^`]+)`", examples)]
    declared = [hint_in(place if place.is_dir() else place.parent) for place in places]
    assert {type(found) for found in declared} == {
        type(checkpoint_plan.parse_hint(hint.strip("`"), ""))
    }


def hint_in(folder: Path) -> checkpoint_plan.Hint:
    """Return the hint of the one Job that is in a folder."""
    documents = [found for file in folder.glob("*.yaml") for found in manifests.read(file)]
    (job,) = [msgspec.convert(found, Resource) for found in documents if found["kind"] == "Job"]
    (view,) = pod_views(job)
    plan = checkpoint_plan.parse(view.annotations, PolicySettings())
    assert isinstance(plan, CheckpointPlan)
    return plan.hint


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:manifests|proto)/[^`]+)`", TEXT))))
def test_every_linked_file_exists(path: str) -> None:
    assert (manifests.ROOT / path).exists()


def test_the_statements_about_the_agent_agree_with_the_code() -> None:
    statements = (
        f"port {agent.PORT}",
        f"`{agent.SIGNAL_FOLDER}/request`",
        f"`{request_files.ANSWER_SUFFIX}`",
        f"{sidecar._RESOURCES['cpu']} CPU and {sidecar._RESOURCES['memory']} of memory",
        f"`{agent.SIGNAL_FOLDER}/request{request_files.SAVED_SUFFIX}`",
        f"once in {report_schedule.MIN_INTERVAL_SECONDS:g} seconds",
        f"the audience `{agent.TOKEN_AUDIENCE}`",
        f"{contract.MAX_ANSWER // 1024} KiB",
        "a volume of 1 MiB",
    )
    assert [words for words in statements if words not in TEXT] == []
    assert sidecar._SIZE == "1Mi"


def test_every_key_on_the_page_exists() -> None:
    defined = {value for name, value in vars(keys).items() if name.isupper()}
    assert set(re.findall(r"reprieve\.dev/[a-z-]+", TEXT)) <= defined
