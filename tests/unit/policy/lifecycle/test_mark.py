"""Soft-eviction marks in all dialects."""

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy import keys
from reprieve_policy.kube.objects import Resource, annotations_of, labels_of
from reprieve_policy.lifecycle import mark
from reprieve_policy.lifecycle.mark import Mark
from reprieve_policy.verdict import Violation
from reprieve_testing.objects.builders import NOW, PodBuilder, a_pod
from reprieve_testing.safe_texts import is_showable

KOORDINATOR = keys.KOORDINATOR_SOFT_EVICTION
PATH = f"metadata.annotations[{KOORDINATOR}]"
GRACE = "deleteOptions.gracePeriodSeconds"
EXPECTED = (
    'must be "true" or a JSON object '
    'like {"timestamp":"2006-01-02T15:04:05Z","initiator":"descheduler"}'
)


def read(pod: Resource) -> Mark | Violation | None:
    return mark.read(labels_of(pod.metadata), annotations_of(pod.metadata))


def annotated(text: str) -> PodBuilder:
    return a_pod().annotated(KOORDINATOR, text)


AS_KOORDINATOR_WRITES_IT = (
    '{"timestamp":"2026-11-21T12:00:00Z","deleteOptions":{"gracePeriodSeconds":20,"propagationPolicy":"Background"},'
    '"initiator":"descheduler","reason":"node is overloaded"}'
)

READ = {
    "a pod without a mark": (a_pod(), None),
    "Reprieve's label": (a_pod().marked(), Mark()),
    "Reprieve's label in a later phase is not a new request": (
        a_pod().labelled(keys.SOFT_EVICTION, "hinted"),
        None,
    ),
    "Koordinator's label": (a_pod().labelled(KOORDINATOR, "true"), Mark()),
    "Koordinator's label with the job that preempts": (
        a_pod().labelled(KOORDINATOR, "job2"),
        Mark(initiator="job2"),
    ),
    "Koordinator's label with the value false": (a_pod().labelled(KOORDINATOR, "false"), None),
    "Koordinator's label that is empty": (a_pod().labelled(KOORDINATOR, ""), None),
    "Koordinator's annotation as its code writes it": (
        annotated(AS_KOORDINATOR_WRITES_IT),
        Mark(
            initiator="descheduler", reason="node is overloaded", requested_at=NOW, grace_seconds=20
        ),
    ),
    "Koordinator's annotation with an epoch, as its pull request shows it": (
        annotated('{"timestamp":1795262400,"initiator":"descheduler"}'),
        Mark(initiator="descheduler", requested_at=NOW),
    ),
    "an epoch as a text": (annotated('{"timestamp":"1795262400"}'), Mark(requested_at=NOW)),
    "a fraction of a second": (
        annotated('{"timestamp":"2026-11-21T13:00:00.25+01:00"}'),
        Mark(requested_at=NOW + timedelta(milliseconds=250)),
    ),
    "the bare true that Koordinator's comment allows": (annotated("true"), Mark()),
    "an annotation with the value false": (annotated("false"), None),
    "an empty annotation": (annotated(""), None),
    "an empty object": (annotated("{}"), Mark()),
    "null fields count as absent": (
        annotated('{"timestamp":null,"deleteOptions":null,"initiator":null,"reason":null}'),
        Mark(),
    ),
    "unknown fields are ignored": (
        annotated('{"initiator":"a","colour":["red"]}'),
        Mark(initiator="a"),
    ),
    "of two equal fields the last counts, as in Go": (
        annotated('{"reason":"a","reason":"b"}'),
        Mark(reason="b"),
    ),
    "the most detailed of several marks is read": (
        annotated('{"initiator":"descheduler"}').labelled(KOORDINATOR, "job2").marked(),
        Mark(initiator="descheduler"),
    ),
    "a grace of zero is read": (
        annotated('{"deleteOptions":{"gracePeriodSeconds":0}}'),
        Mark(grace_seconds=0),
    ),
    "an unreadable annotation does not take back a label": (annotated("{").marked(), Mark()),
    "line ends in a text become spaces": (
        annotated(r'{"reason":"two\nlines"}'),
        Mark(reason="two lines"),
    ),
    "the number of victims": (annotated('{"victims":2}'), Mark(victims=2)),
    "no number of victims is ignored": (annotated('{"victims":0,"reason":"a"}'), Mark(reason="a")),
    "another text for victims is ignored": (annotated('{"victims":"2"}'), Mark()),
    "a lone surrogate cannot be kept": (annotated(r'{"reason":"a\ud800b"}'), Mark(reason="a b")),
    "a long text is cut at 256 bytes": (
        annotated(json.dumps({"reason": "再" * 200})),
        Mark(reason="再" * 85),
    ),
}


@pytest.mark.parametrize(("pod", "want"), READ.values(), ids=READ)
def test_marks_are_read(pod: PodBuilder, want: Mark | None) -> None:
    assert read(pod.build()) == want


OWN = {
    "a mark of the guard": (
        mark.render(
            Mark(initiator=mark.GUARD_INITIATOR, reason="preempted by pod uid", requested_at=NOW)
        ),
        True,
    ),
    "a mark of `reprieve reclaim`": (mark.render(Mark(initiator=mark.RECLAIM_INITIATOR)), True),
    "a descheduler's": (AS_KOORDINATOR_WRITES_IT, False),
    "a mark with Reprieve's initiator as its reason": (
        '{"initiator":"a","reason":"reprieve-reclaim"}',
        False,
    ),
    "a mark without an initiator": ("true", False),
    "an unreadable mark": ("{", False),
    "an empty mark": ("", False),
}


@pytest.mark.parametrize(("text", "want"), OWN.values(), ids=OWN)
def test_a_mark_is_reprieves_own_if_reprieve_has_set_it(text: str, *, want: bool) -> None:
    assert mark.is_written_by_reprieve({KOORDINATOR: text}) is want


def test_a_pod_without_koordinators_annotation_has_no_mark_of_reprieves_in_it() -> None:
    assert not mark.is_written_by_reprieve({})


REFUSED = {
    "Python's own truth": ("True", f'{PATH}: Invalid value: "True": {EXPECTED}'),
    "a number": ("1", f'{PATH}: Invalid value: "1": {EXPECTED}'),
    "a list": ("[]", f'{PATH}: Invalid value: "[]": {EXPECTED}'),
    "broken JSON": ("{", f'{PATH}: Invalid value: "{{": {EXPECTED}'),
    "NaN for an object": ("NaN", f'{PATH}: Invalid value: "NaN": {EXPECTED}'),
    "an integer of 5000 digits": ('{"timestamp":' + "9" * 5000 + "}", f"{PATH}: Invalid value: "),
    "an annotation of 20 KB": ("x" * 20_480, f"{PATH}: Invalid value: "),
    "an unreadable timestamp": (
        '{"timestamp":"yesterday"}',
        f'{PATH}.timestamp: Invalid value: "yesterday": must be RFC 3339 or an epoch',
    ),
    "a boolean as timestamp": (
        '{"timestamp":true}',
        f'{PATH}.timestamp: Invalid value: "true": must be RFC 3339 or an epoch',
    ),
    "NaN as timestamp": (
        '{"timestamp":NaN}',
        f'{PATH}.timestamp: Invalid value: "NaN": must be RFC 3339',
    ),
    "Infinity as timestamp": (
        '{"timestamp":-Infinity}',
        f'{PATH}.timestamp: Invalid value: "-Infinity": must be',
    ),
    "the year zero": (
        '{"timestamp":"0000-01-01T00:00:00Z"}',
        f'{PATH}.timestamp: Invalid value: "0000-01-01T00:00:00Z": must be RFC 3339',
    ),
    "a number as initiator": (
        '{"initiator":7}',
        f'{PATH}.initiator: Invalid value: "7": must be a string',
    ),
    "a list as reason": (
        '{"reason":["a"]}',
        f'{PATH}.reason: Invalid value: "[…]": must be a string',
    ),
    "a text as deleteOptions": (
        '{"deleteOptions":"now"}',
        f'{PATH}.deleteOptions: Invalid value: "now": must be an object',
    ),
    "a negative grace": (
        '{"deleteOptions":{"gracePeriodSeconds":-1}}',
        f'{PATH}.{GRACE}: Invalid value: "-1": must be whole seconds, 0 or more',
    ),
    "a boolean as grace": (
        '{"deleteOptions":{"gracePeriodSeconds":true}}',
        f'{PATH}.deleteOptions.gracePeriodSeconds: Invalid value: "true": must be whole seconds',
    ),
    "a grace above int64": (
        '{"deleteOptions":{"gracePeriodSeconds":9223372036854775808}}',
        f'{PATH}.{GRACE}: Invalid value: "9223372036854775808": must be whole seconds',
    ),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_unreadable_marks_are_violations_but_marks_all_the_same(text: str, message: str) -> None:
    pod = annotated(text).build()
    found = read(pod)
    assert isinstance(found, Violation)
    assert str(found).startswith(message)
    assert len(str(found)) < 400
    assert mark.is_marked(labels_of(pod.metadata), annotations_of(pod.metadata))


@pytest.mark.parametrize("depth", [200, *range(960, 1000, 3), 8000])
def test_json_of_any_depth_causes_no_exception(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    assert isinstance(mark.parse_annotation(f'{{"timestamp":{nested}}}', PATH), Violation)
    assert isinstance(mark.parse_annotation(nested, PATH), Violation)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
OPTIONS = st.dictionaries(st.just("gracePeriodSeconds"), JSON) | JSON
DOCUMENTS = st.dictionaries(
    st.sampled_from(["timestamp", "initiator", "reason", "victims"]), JSON
).flatmap(
    lambda document: OPTIONS.map(lambda options: json.dumps({**document, "deleteOptions": options}))
)


@given(DOCUMENTS | st.text(st.characters(exclude_categories=())))
def test_any_annotation_is_a_mark_or_a_violation_in_one_line(text: str) -> None:
    found = mark.parse_annotation(text, PATH)
    assert isinstance(found, Mark) or is_showable(str(found))


@pytest.mark.parametrize(("pod", "want"), READ.values(), ids=READ)
def test_a_pod_is_marked_if_a_mark_is_read(pod: PodBuilder, want: Mark | None) -> None:
    metadata = pod.build().metadata
    assert mark.is_marked(labels_of(metadata), annotations_of(metadata)) is (want is not None)


RENDERED = {
    "unset fields are left out": (Mark(), "{}"),
    "set fields are written as Koordinator does": (
        Mark(initiator="a", reason='"b"', requested_at=NOW, grace_seconds=20),
        '{"timestamp":"2026-11-21T12:00:00Z","deleteOptions":{"gracePeriodSeconds":20},"initiator":"a","reason":"\\"b\\""}',
    ),
}


@pytest.mark.parametrize(("written", "text"), RENDERED.values(), ids=RENDERED)
def test_a_rendered_mark_is_read_back(written: Mark, text: str) -> None:
    assert mark.render(written) == text
    assert mark.parse_annotation(text, PATH) == written
