"""Generated labels and annotations about preemption: valid, nearly valid, and arbitrary texts."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from hypothesis import strategies as st

from reprieve_policy import keys
from reprieve_policy.config import toleration
from reprieve_policy.config.annotation_values import LONGEST
from reprieve_policy.verdict import HIDDEN_CODE_POINTS

KeyValues = Mapping[str, str]

_BOOLEANS = ["true", "false", "True", "yes", "", "0"]
_DURATIONS = [
    *("10m", "90s", "1h30m", "30m", "1800s", "30m0s", "29m60s", "5m", "300s", "000005m"),
    *("31m", "1801s", "301s", "2h", "999999h", "999999h999999m999999s"),
    *("0s", "0h0m", "", "10", "5 m", "1.5h", "5s1m", "-5m", "+5m", "1000000s", "1d", "10m\n", "٣m"),
]
_HINTS = [
    *(
        "http://:8080/checkpoint",
        "http://:1/",
        "http://:65535/x?y=z",
        "annotation:",
        "http://:80/" + "x" * 501,
    ),
    *(
        "http://:80/" + "x" * 502,
        "http://:65536/",
        "http://:0/",
        "http://:080/",
        "http://:8080",
        "http://h:80/",
    ),
    *(
        "http://:80/#f",
        "http://:80/a b",
        "http://:80/é",
        "grpc://:9000",
        "annotation",
        "HTTP://:80/",
        "",
    ),
]
_NUMBERS = [
    *(
        "0",
        "-1",
        "+5",
        "007",
        "-0",
        "3600",
        "1000",
        "1001",
        "999",
        "2147483647",
        "2147483648",
        "-2147483648",
    ),
    *("-2147483649", "9223372036", "9223372037", "9223372036854775807", "9223372036854775808"),
    *(
        "-9223372036854775808",
        "-9223372036854775809",
        "0000000000000000000000000000000000001",
        "9" * 30,
        "-" + "9" * 30,
    ),
    *("", "-", "+", "--1", "1.0", "1e3", " 1", "1\n", "1_000", "0x10", "٣"),
    *("5".zfill(LONGEST), "5".zfill(LONGEST + 1), "9" * LONGEST, "9" * (LONGEST + 1)),
]
_CLEANERS = [
    "example.com/a",
    "example.com/a, x.example.com/B_c.d",
    *("", "release", "example.com/", "example.com/a,", "Example.com/a", "example.com/a\n"),
    f"{'x' * 253}/a",
    f"{'x' * 254}/a",
    f"example.com/{'a' * 64}",
    ",".join(["example.com/a"] * 60),
]
_CLASSES = [*map(str, range(11)), "11", "-1", "04", "high", "", "10.0"]

_ODD = [chr(point) for pair in HIDDEN_CODE_POINTS for point in pair] + list(
    "\"\\'\a\b\f\n\r\t\v/[]{}%$é高🂡\u0301\xa0\u3000"
)
"""Characters that are shown in another form, or could be."""
_ANYTHING = st.text(st.sampled_from(_ODD) | st.characters(exclude_categories=["Cs"]), max_size=80)
_LABEL = st.from_regex(r"\A([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]\Z")
"""The API server refuses any other label before it evaluates a policy."""


def _label(texts: list[str]) -> st.SearchStrategy[str]:
    return st.sampled_from(texts).filter(_is_label) | _LABEL


def _is_label(text: str) -> bool:
    return not text or (text[0].isalnum() and text[-1].isalnum())


def _annotation(texts: list[str]) -> st.SearchStrategy[str]:
    return st.sampled_from(texts) | _ANYTHING


_POD_LABELS = {
    keys.PREEMPTION_CLASS: _label(_CLASSES),
    keys.PREEMPTIBLE: _label(_BOOLEANS),
    keys.CAN_PREEMPT: _label(_BOOLEANS),
}
_POD_ANNOTATIONS = {
    keys.CHECKPOINT: _annotation(["auto", "manual", "none", "None", "", "auto "]),
    keys.CHECKPOINT_HINT: _annotation(_HINTS),
    keys.CHECKPOINT_TIMEOUT: _annotation(_DURATIONS),
    keys.MAX_DEFERRAL: _annotation(_DURATIONS),
    keys.ESTIMATED_CHECKPOINT_TIME: _annotation(_DURATIONS),
    keys.REQUEUE: _annotation(["auto", "never", "always", ""]),
    keys.REQUEUE_ENV: _annotation(["true", "false", "True", ""]),
    keys.CLEANERS_BEFORE: _annotation(_CLEANERS),
}
_MARKS = {
    keys.SOFT_EVICTION: _label(["requested", "x"]),
    keys.KOORDINATOR_SOFT_EVICTION: _label(["true", "false"]),
}
_PRIORITY_CLASS = {
    **{
        key: _annotation(_NUMBERS)
        for prefix in (keys.TOLERATION_PREFIX, keys.OLD_TOLERATION_PREFIX)
        for key in toleration.annotation_keys(prefix)
    },
    keys.DEFAULT_PREEMPTION_CLASS: _annotation(_CLASSES),
}


class Metadata(NamedTuple):
    """Labels and annotations."""

    labels: KeyValues
    annotations: KeyValues

    def as_json(self) -> dict[str, Any]:
        return {"labels": dict(self.labels), "annotations": dict(self.annotations)}


def _optional_keys(texts: Mapping[str, st.SearchStrategy[str]]) -> st.SearchStrategy[KeyValues]:
    return st.fixed_dictionaries({}, optional=dict(texts))


pod_metadata = st.builds(Metadata, _optional_keys(_POD_LABELS), _optional_keys(_POD_ANNOTATIONS))
template_metadata = st.builds(
    Metadata,
    _optional_keys({**_POD_LABELS, **_MARKS}),
    _optional_keys({**_POD_ANNOTATIONS, keys.KOORDINATOR_SOFT_EVICTION: st.just("true")}),
)
priority_class_metadata = st.builds(Metadata, st.just({}), _optional_keys(_PRIORITY_CLASS))
