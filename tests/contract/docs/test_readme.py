"""What the README lists is what the code has: keys, and the phases of a victim's life."""

import re
from pathlib import Path

from reprieve_policy import keys
from reprieve_policy.lifecycle.eviction import Phase

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
TABLE = README[README.index("## Keys") : README.index("## Not yet")]

NOT_SHOWN = {
    keys.PREFIX,
    keys.TOLERATION_PREFIX,
    keys.OLD_TOLERATION_PREFIX,  # warned about
    keys.MINIMUM_PREEMPTABLE_PRIORITY,
    keys.TOLERATION_SECONDS,
    keys.COMPLETION_INDEX,  # the Job controller's
    keys.JOB_UID,
    keys.KUEUE_QUEUE,  # the label of a Job's queue
}


def test_every_key_of_the_code_stands_in_the_readme() -> None:
    defined = {value for name, value in vars(keys).items() if name.isupper()}
    assert {key for key in defined - NOT_SHOWN if f"`{key}`" not in TABLE} == set()


def test_every_key_in_the_readme_exists() -> None:
    source = Path(keys.__file__).read_text(encoding="utf-8")
    shown = set(re.findall(r"`([a-z.-]+(?:\.dev|\.sh|\.io)/[a-z-]+)`", TABLE))
    assert {key for key in shown if key.partition("/")[2] not in source} == set()


def test_the_phases_that_the_readme_draws_are_those_of_the_table() -> None:
    (drawing,) = re.findall(r"^```\n(requested → .*?)^```$", README, re.MULTILINE | re.DOTALL)
    drawn = set(re.findall(r"(?:→ |^)([a-z]+)(?= |,|$)", drawing, re.MULTILINE))
    assert drawn - {"checkpoint"} == {phase.value for phase in Phase}
