"""Which key was meant by one that is nearly a key that Reprieve reads.

Two measures. Under our own prefix every unknown key is a mistake, so the most similar key of ours
is suggested, however far it is. Under the prefixes of other projects most keys are theirs: only a
few wrong letters count, in keys that users type. What controllers write is never guessed, and the
prefix must be right: `scheduling.k8s.io/pod-group` is a key of another project.
"""

import difflib
from collections import defaultdict
from functools import lru_cache

from reprieve_policy import keys
from reprieve_policy.config.toleration import annotation_keys

from .key_places import PLACES, Place

_OURS = frozenset(key for place in PLACES for key in place.labels | place.annotations)
_OUR_NAMES = frozenset(key.removeprefix(keys.PREFIX) for key in _OURS)

TYPED = frozenset(
    {
        keys.PREEMPTIBLE,
        keys.CAN_PREEMPT,
        keys.QUOTA_NAME,
        keys.QUOTA_NAMESPACES,
        keys.EVICTION_COST,
        keys.KOORDINATOR_SOFT_EVICTION,
        keys.POD_GROUP,
        keys.KOORDINATOR_POD_GROUP,
        keys.OLD_POD_GROUP,
        keys.OLD_MIN_AVAILABLE,
        keys.DRAFT_POD_GROUP,
        keys.DRAFT_MIN_AVAILABLE,
        keys.KOORDINATOR_GANG,
        keys.KOORDINATOR_MIN_AVAILABLE,
        keys.KOORDINATOR_TOTAL,
        keys.KOORDINATOR_MODE,
        keys.VOLCANO_GROUP,
        keys.VOLCANO_OWN_GROUP,
        keys.KUEUE_QUEUE,
        keys.KUEUE_GROUP,
        keys.KUEUE_TOTAL,
        *annotation_keys(keys.TOLERATION_PREFIX),
        *annotation_keys(keys.OLD_TOLERATION_PREFIX),
    }
)
"""Keys of other projects that Reprieve reads and that users type."""

_RIGHT = TYPED | frozenset(
    value
    for name, value in vars(keys).items()
    if name.isupper() and isinstance(value, str) and not value.startswith(keys.PREFIX)
)
"""Keys of other projects that are right as they are, also those that controllers write."""

_SHORT = 8
"""In a name of fewer letters than this, one wrong letter is allowed; otherwise two."""
_LONGEST = 63
"""Letters of a name that the API server accepts; a file may have more."""
LONGEST_KEY = 253 + len("/") + _LONGEST
"""Letters of a key that the API server accepts. In the template of a kind of another project, it
accepts any."""
_REMEMBERED = 4096
"""Keys whose answer is cached. The pods of a cluster have the same keys again and again."""


def _by_prefix() -> dict[str, list[str]]:
    """Return the keys that users type, by their prefix; empty for a key without one."""
    found = defaultdict(list)
    for key in sorted(TYPED):
        found[key.rpartition("/")[0]].append(key)
    return dict(found)


_TYPED_UNDER = _by_prefix()


def is_suspicious(key: str) -> bool:
    """True if a key that is not read where it stands deserves a closer look.

    False for nearly every key of another project. Every key of every object is asked about.
    """
    return key.startswith(keys.PREFIX) if len(key) > LONGEST_KEY else _is_suspicious(key)


@lru_cache(maxsize=_REMEMBERED)
def _is_suspicious(key: str) -> bool:
    if key.startswith(keys.PREFIX):
        return True
    prefix, _, name = key.rpartition("/")
    return (prefix in _TYPED_UNDER or name in _OUR_NAMES) and key not in _RIGHT


def resembled(key: str) -> str:
    """Return the key that `key` is a misspelling of by a few letters; empty if there is none."""
    return "" if len(key) > LONGEST_KEY else _resembled(key)


@lru_cache(maxsize=_REMEMBERED)
def _resembled(key: str) -> str:
    prefix, _, name = key.rpartition("/")
    if name in _OUR_NAMES:
        return keys.PREFIX + name if _is_near(f"{prefix}/", keys.PREFIX) else ""
    meant = (known for known in _TYPED_UNDER.get(prefix, ()) if _is_near(key, known))
    return next(meant, "")


def most_similar(key: str, here: Place) -> str:
    """Return the key of ours that an unknown one under our prefix resembles; empty if none does.

    Keys that are read `here` are preferred.
    """
    wanted = _plain(key.removeprefix(keys.PREFIX))[:_LONGEST]
    for known in (here.labels | here.annotations, _OURS):
        names = sorted(each.removeprefix(keys.PREFIX) for each in known)
        if found := difflib.get_close_matches(wanted, names, n=1):
            return keys.PREFIX + found[0]
    return ""


def _plain(text: str) -> str:
    return text.lower().replace("_", "-")


def _is_near(text: str, meant: str) -> bool:
    """True if a few letters differ; a name that is short may have one wrong letter."""
    allowed = 1 if len(meant.rpartition("/")[2] or meant) < _SHORT else 2
    return abs(len(text) - len(meant)) <= allowed and _count_edits(_plain(text), meant) <= allowed


def _count_edits(text: str, meant: str) -> int:
    """Return how many letters must be added, removed or replaced (Levenshtein's distance)."""
    above = list(range(len(meant) + 1))
    for row, letter in enumerate(text, start=1):
        current = [row]
        for column, expected in enumerate(meant, start=1):
            replaced = above[column - 1] + (letter != expected)
            current.append(min(above[column] + 1, current[-1] + 1, replaced))
        above = current
    return above[-1]
