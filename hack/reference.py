"""`make docs`: the reference of rules, one page a rule, from the rules and the pinned messages.

The pages are generated completely: from the docstring of a rule's module, the kinds that it
concerns, the keys that it reads, and its texts in `tests/contract/golden`. A contract test compares
the pages with their sources.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from reprieve_policy import keys
from reprieve_policy.admission import manifest_form
from reprieve_policy.admission.rules import RULES
from reprieve_policy.kube.kinds import CUSTOM, POD_KINDS

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "rules"
MESSAGES = ROOT / "tests" / "contract" / "golden" / "messages.txt"

_HEADING = re.compile(r"# (?P<kind>\w+): (?P<sentence>.*) \[(?P<rules>[a-z, -]*)\]")
_LABELLED = re.compile(r"\A(Checked|Warned of|Why|Source|Setting)(?=:| )")
_KEY = re.compile(r"\[([a-z0-9.-]+/[a-z-]+)\]")
_KEYS = frozenset(
    value for name, value in vars(keys).items() if name.isupper() and "/" in value[:-1]
)
_TOLERATIONS = (keys.TOLERATION_PREFIX, keys.OLD_TOLERATION_PREFIX)


class Page(NamedTuple):
    """A rule and its module."""

    id: str
    kinds: frozenset[str]
    module: ModuleType


class Example(NamedTuple):
    """The pinned texts of a case, and the sentence of the case."""

    kind: str
    sentence: str
    texts: tuple[str, ...]


def build() -> Mapping[str, str]:
    """Return every page by its file name."""
    examples = read_examples(MESSAGES.read_text(encoding="utf-8"))
    pages = list(_pages())
    texts = {f"{page.id}.md": "".join(_page(page, examples.get(page.id, ()))) for page in pages}
    return {"README.md": "".join(_index(pages)), **texts}


def read_examples(text: str) -> dict[str, tuple[Example, ...]]:
    """Return the pinned texts by rule; a case of several rules is on no page."""
    found: dict[str, tuple[Example, ...]] = {}
    for part in re.split(r"^(?=# )", text, flags=re.MULTILINE)[1:]:
        heading, *texts = part.splitlines()
        match = _HEADING.fullmatch(heading)
        if match is None:
            raise ValueError(f"not the heading of a case: {heading}")
        example = Example(match["kind"], match["sentence"], tuple(texts))
        if "," not in match["rules"]:
            found[match["rules"]] = (*found.get(match["rules"], ()), example)
    return found


def main() -> None:
    """Write the pages, and remove those of removed rules."""
    PAGES.mkdir(parents=True, exist_ok=True)
    pages = build()
    for path in PAGES.glob("*.md"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        (PAGES / name).write_text(text, encoding="utf-8")
    print(f"docs: {len(pages)} pages in {PAGES.relative_to(ROOT)}")


def _pages() -> Iterator[Page]:
    for rule in RULES:
        module = inspect.getmodule(rule.check)
        assert module is not None
        yield Page(rule.id, rule.kinds, module)
    yield Page(manifest_form.RULE, frozenset(), manifest_form)


def _index(pages: list[Page]) -> Iterator[str]:
    yield "# Rules\n\n"
    yield (
        "With these pages you look up why an object was refused or warned of. `reprieve check` "
        "writes the id\nof the rule, which is the name of its page, in brackets behind each "
        'finding; `reprieve audit` has\nit in the column RULE. "Document 001" and the like are '
        "explained in [sources](../sources.md).\n`make docs` writes these pages from the rules.\n\n"
    )
    yield "| rule | what holds | concerns |\n|---|---|---|\n"
    for page in pages:
        yield f"| [`{page.id}`]({page.id}.md) | {_sentence(page)} | {_kinds_in_short(page)} |\n"


def _page(page: Page, examples: tuple[Example, ...]) -> Iterator[str]:
    source = Path(str(page.module.__file__)).relative_to(ROOT)
    yield f"# `{page.id}`\n\n{_sentence(page)}\n"
    for paragraph in _paragraphs(page)[1:]:
        yield "\n" + _LABELLED.sub(r"**\1**", paragraph) + "\n"
    yield f"\n**Concerns**: {', '.join(_kinds(page))}.\n"
    read = sorted(_keys_of(page, examples))
    if read:
        yield "\n**Keys**:\n" + "".join(f"- `{key}`\n" for key in read)
    if examples:
        yield "\n## What it says\n"
        for example in examples:
            yield (
                f"\n{example.kind}: {example.sentence}\n```\n"
                + "".join(f"{text}\n" for text in example.texts)
                + "```\n"
            )
    yield f"\nWritten by `make docs` from `{source}`.\n"


def _paragraphs(page: Page) -> list[str]:
    return (inspect.getdoc(page.module) or "").split("\n\n")


def _sentence(page: Page) -> str:
    return _paragraphs(page)[0].replace("\n", " ")


def _kinds(page: Page) -> list[str]:
    named = sorted(page.kinds - {CUSTOM})
    custom = ["kinds of `templateKinds`"] if CUSTOM in page.kinds else []
    return (named + custom) or ["every kind that has rules"]


def _kinds_in_short(page: Page) -> str:
    rest = sorted(page.kinds - POD_KINDS)
    return ", ".join(["pods and templates", *rest] if page.kinds >= POD_KINDS else _kinds(page))


def _keys_of(page: Page, examples: tuple[Example, ...]) -> set[str]:
    """Return the keys that the rule's texts name, and those that its module imports."""
    imported = {
        value for value in vars(page.module).values() if isinstance(value, str) and value in _KEYS
    }
    said = {key for example in examples for text in example.texts for key in _KEY.findall(text)}
    return imported | {key for key in said if key in _KEYS or key.startswith(_TOLERATIONS)}


if __name__ == "__main__":
    main()
