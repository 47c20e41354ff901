"""docs/upstream.md names each difference from upstream's plugin, and how many scenarios show it."""

from collections.abc import Iterator

from reprieve_testing import manifests
from reprieve_testing.differential import population
from reprieve_testing.differential.difference import WHY, Difference

PAGE = (manifests.ROOT / "docs" / "upstream.md").read_text(encoding="utf-8")
BEGIN, END = "<!-- population: begin -->\n", "<!-- population: end -->"


def test_the_table_has_the_numbers_of_the_default_scenarios() -> None:
    assert PAGE.split(BEGIN)[1].split(END)[0] == "".join(f"{line}\n" for line in table())


def table() -> Iterator[str]:
    scenarios = population.all_scenarios()
    found = population.count_differences(scenarios)
    yield f"| difference | why | of {len(scenarios)} scenarios |"
    yield "|---|---|---|"
    for difference in Difference:
        yield f"| `{difference}` | {WHY[difference]} | {found[frozenset({difference})]} |"
    several = sum(count for names, count in found.items() if len(names) > 1)
    if several:
        yield f"| several of them | | {several} |"
    yield f"| none: the same victims for the same node | | {len(scenarios) - found.total()} |"
