"""docs/keys.md lists the keys that the code has, and no others."""

import re
from pathlib import Path

from reprieve_policy import keys
from reprieve_testing import manifests

PAGE = (manifests.ROOT / "docs" / "keys.md").read_text(encoding="utf-8")
TABLES = "\n".join(line for line in PAGE.splitlines() if line.startswith("|"))

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


def test_every_key_of_the_code_is_in_a_table() -> None:
    defined = {value for name, value in vars(keys).items() if name.isupper()}
    assert {key for key in defined - NOT_SHOWN if f"`{key}`" not in TABLES} == set()


def test_every_key_on_the_page_exists() -> None:
    source = Path(keys.__file__).read_text(encoding="utf-8")
    shown = set(re.findall(r"`([a-z.-]+(?:\.dev|\.sh|\.io)/[a-z-]+)`", PAGE))
    assert {key for key in shown if key.partition("/")[2] not in source} == set()
