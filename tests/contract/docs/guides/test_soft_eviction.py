"""docs/soft-eviction.md draws the phases that the table of a victim's life has."""

import re

from reprieve_policy.lifecycle.eviction import Phase
from reprieve_testing import manifests

PAGE = (manifests.ROOT / "docs" / "soft-eviction.md").read_text(encoding="utf-8")


def test_the_phases_that_the_page_draws_are_those_of_the_table() -> None:
    (drawing,) = re.findall(r"^```\n(requested → .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    drawn = set(re.findall(r"(?:→ |^)([a-z]+)(?= |,|$)", drawing, re.MULTILINE))
    assert drawn - {"checkpoint"} == {phase.value for phase in Phase}
