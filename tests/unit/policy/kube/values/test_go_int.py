"""Whole numbers as Go's `strconv.ParseInt` reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.kube.values import go_int

READ = {
    "a number is read": ("5", 64, 5),
    "a plus sign is allowed": ("+5", 64, 5),
    "minus zero is zero": ("-0", 64, 0),
    "leading zeros are allowed": ("00", 64, 0),
    "leading zeros are allowed in any number": ("0" * 5000 + "7", 64, 7),
    "the highest int32 fits": ("2147483647", 32, 2_147_483_647),
    "the highest int32 plus 1": ("2147483648", 32, None),
    "the lowest int32 fits": ("-2147483648", 32, -2_147_483_648),
    "the lowest int32 minus 1": ("-2147483649", 32, None),
    "the highest int64 fits": ("9223372036854775807", 64, 9_223_372_036_854_775_807),
    "the highest int64 plus 1": ("9223372036854775808", 64, None),
    "the lowest int64 fits": ("-9223372036854775808", 64, -9_223_372_036_854_775_808),
    "a number of many digits does not fit": ("9" * 5000, 64, None),
    "space is refused": (" 5", 64, None),
    "a line end is refused": ("5\n", 64, None),
    "underscores are refused": ("5_0", 64, None),
    "digits of other scripts are refused": ("٣", 64, None),
    "a fraction is refused": ("5.0", 64, None),
    "hexadecimal is refused": ("0x5", 64, None),
    "a sign alone is refused": ("-", 64, None),
    "two signs are refused": ("--5", 64, None),
    "nothing is refused": ("", 64, None),
}


@pytest.mark.parametrize(("text", "bits", "want"), READ.values(), ids=READ)
def test_numbers_are_read_as_go_reads_them(text: str, bits: int, want: int | None) -> None:
    assert go_int.parse(text, bits) == want


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_every_int64_is_read_back(number: int) -> None:
    assert go_int.parse(str(number), 64) == number
