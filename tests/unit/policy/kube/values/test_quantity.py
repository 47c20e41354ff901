"""Quantities, as Kubernetes reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.kube.values import quantity
from reprieve_policy.kube.values.quantity import NANOS
from reprieve_policy.verdict import Violation, ViolationKind

READ = {
    "nothing": ("0", 0),
    "a whole number": ("2", 2 * NANOS),
    "a number of JSON": (2, 2 * NANOS),
    "a fraction of JSON": (0.5, NANOS // 2),
    "a number of JSON that a float would round": (2**53 + 1, (2**53 + 1) * NANOS),
    "a plus sign": ("+2", 2 * NANOS),
    "a negative number": ("-1", -NANOS),
    "leading zeros": ("007", 7 * NANOS),
    "a fraction": ("0.5", NANOS // 2),
    "a fraction without its zero": (".5", NANOS // 2),
    "a point at the end": ("5.", 5 * NANOS),
    "nanos": ("1n", 1),
    "micros": ("1u", 10**3),
    "millis": ("500m", NANOS // 2),
    "thousands": ("1k", 10**3 * NANOS),
    "millions": ("1M", 10**6 * NANOS),
    "billions": ("1G", 10**9 * NANOS),
    "trillions": ("1T", 10**12 * NANOS),
    "quadrillions": ("1P", 10**15 * NANOS),
    "quintillions, not an exponent": ("1E", 10**18 * NANOS),
    "kibi": ("1Ki", 2**10 * NANOS),
    "mebi": ("1Mi", 2**20 * NANOS),
    "gibi": ("1.5Gi", 3 * 2**29 * NANOS),
    "tebi": ("1Ti", 2**40 * NANOS),
    "pebi": ("1Pi", 2**50 * NANOS),
    "exbi": ("1Ei", 2**60 * NANOS),
    "an exponent": ("2e3", 2000 * NANOS),
    "an exponent in capitals": ("2E+3", 2000 * NANOS),
    "a negative exponent": ("5e-1", NANOS // 2),
    "less than a nano is rounded up": ("0.1n", 1),
    "a negative less than a nano is one too": ("-0.1n", -1),
    "more digits than a float holds": ("9007199254740993", 9007199254740993 * NANOS),
    "the highest exponent": ("1e99", 10**99 * NANOS),
    "64 digits": ("9" * 64, (10**64 - 1) * NANOS),
}

REFUSED = {
    "an empty text": "",
    "a word": "many",
    "a suffix alone": "Gi",
    "a suffix in the wrong case": "1gi",
    "a capital K": "1K",
    "a unit": "1GB",
    "a comma": "1,5",
    "a space": "1 Gi",
    "two decimal points": "1.2.3",
    "a point alone": ".",
    "a sign alone": "-",
    "two signs": "--1",
    "an exponent without a number": "1e",
    "an exponent with a fraction": "1e1.5",
    "an exponent and a suffix": "1e3Ki",
    "an exponent with too many digits to write out": "1e1000000000",
    "a very negative one": "1e-100",
    "too many digits": "9" * 65,
    "digits of another script": "٣",
    "infinity": float("inf"),
    "not a number": float("nan"),
    "a line end": "1\n",
}

SHOWN = {
    "nothing": ("0", "0"),
    "a whole number": ("7", "7"),
    "a fraction": ("1.5", "1500m"),
    "micros": ("20u", "20u"),
    "nanos": ("1n", "1n"),
    "a power of two": ("2048Mi", "2Gi"),
    "a number without a binary suffix": ("1000", "1000"),
    "a negative number": ("-1536", "-1536"),
    "a negative fraction": ("-1500m", "-1500m"),
    "more than exbi": ("2048Ei", "2048Ei"),
}


def read(text: str | float) -> int:
    found = quantity.parse(text, "path")
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize(("text", "nanos"), READ.values(), ids=READ)
def test_a_quantity_is_read_exactly(text: str | float, nanos: int) -> None:
    assert read(text) == nanos


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_a_text_that_kubernetes_does_not_read_is_refused(text: str | float) -> None:
    assert quantity.parse(text, "path") == Violation(
        "path", ViolationKind.INVALID, str(text), quantity.EXPECTED
    )


@pytest.mark.parametrize(("text", "shown"), SHOWN.values(), ids=SHOWN)
def test_a_quantity_is_rendered_in_the_usual_form(text: str, shown: str) -> None:
    assert quantity.render(read(text)) == shown


@given(st.integers(min_value=-(10**30), max_value=10**30))
def test_a_rendered_quantity_is_read_back(nanos: int) -> None:
    assert read(quantity.render(nanos)) == nanos


@given(st.text() | st.floats() | st.integers())
def test_any_text_is_either_a_quantity_or_a_violation(text: str | float) -> None:
    assert isinstance(quantity.parse(text, "path"), (int, Violation))
