"""`make new-rule NAME=max-replicas`: create the files of a new admission rule.

The program writes the rule's module and a table of cases, adds the rule to `RULES`, and prints what
remains to be done. The new test fails until its placeholder case is filled in. Nothing is written
if the name is unusable or if any of the files exists.

Folders and import lines are taken from the packages themselves, so that the program needs no change
when a module moves.
"""

import ast
import keyword
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeGuard

from reprieve_policy import verdict
from reprieve_policy.admission import rules
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Resource

ROOT = Path(__file__).resolve().parents[1]
RULES = Path(rules.__file__).parent.relative_to(ROOT)
"""The folder with one module for each rule. Its `__init__.py` holds the list `RULES`."""
TESTS = Path("tests/unit/policy", *RULES.parts[2:])
"""The folder with one table of cases for each rule. It mirrors the folder of the rules."""

_NAME = re.compile(r"[a-z]+(-[a-z]+)*")
"""Ids are names of pages and parts of messages: lower-case words with hyphens, without digits."""


_UNUSED = "# noqa: ARG001 - every rule has one form"


class BadNameError(ValueError):
    """The name cannot be the id of a new rule. The text says what to do instead."""


class NewRule(NamedTuple):
    """The id of a rule, and the names that follow from it."""

    id: str

    @property
    def module(self) -> str:
        """The name of the module and of its import."""
        return self.id.replace("-", "_")

    @property
    def source(self) -> Path:
        """The rule's module, relative to the repository."""
        return RULES / f"{self.module}.py"

    @property
    def test(self) -> Path:
        """The rule's table of cases, relative to the repository."""
        return TESTS / f"test_{self.module}.py"


def create(rule_id: str, root: Path = ROOT) -> NewRule:
    """Create the rule `rule_id` in the tree at `root`.

    Raises:
        BadNameError: the name is unusable or taken; nothing was written.
    """
    if not _NAME.fullmatch(rule_id):
        detail = "use lower-case words with hyphens and no digits, such as max-replicas"
        raise BadNameError(f'"{rule_id}": {detail}')
    rule = NewRule(rule_id)
    if keyword.iskeyword(rule.module):
        raise BadNameError(f'"{rule_id}": a Python keyword cannot be the name of a module')
    registry = root / RULES / "__init__.py"
    text = registry.read_text(encoding="utf-8")
    if f'Rule("{rule.id}"' in text:
        raise BadNameError(f'"{rule_id}": RULES already has a rule with this id')
    for path in (rule.source, rule.test):
        if (root / path).exists():
            raise BadNameError(f'"{rule_id}": {path} already exists')
    registered = register(text, rule)
    (root / rule.test).parent.mkdir(parents=True, exist_ok=True)
    (root / rule.source).write_text(_source(), encoding="utf-8")
    (root / rule.test).write_text(_cases(rule), encoding="utf-8")
    registry.write_text(registered, encoding="utf-8")
    return rule


def register(text: str, rule: NewRule) -> str:
    """Return the text of the rules' `__init__.py` with `rule` imported and listed last."""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    imported = next(node for node in tree.body if _imports_rules(node))
    listed = next(node for node in tree.body if _is_list_of_rules(node))
    assert listed.end_lineno is not None
    # From the end of the file to its beginning, so that the line numbers of the tree stay valid.
    entry = f'    Rule("{rule.id}", POD_KINDS, {rule.module}.check),\n'
    lines.insert(listed.end_lineno - 1, entry)
    later = [alias.lineno for alias in imported.names if alias.name > rule.module]
    assert imported.end_lineno is not None
    lines.insert(min(later, default=imported.end_lineno) - 1, f"    {rule.module},\n")
    return "".join(lines)


def next_steps(rule: NewRule) -> str:
    """Return what the author does next, in the order in which the tests ask for it."""
    return f"""created {rule.source}
created {rule.test}
added   Rule("{rule.id}", …) to {RULES / "__init__.py"}

Next:
1. In {rule.source}, replace each TODO of the docstring: it becomes the rule's page.
   Write `check`. If it reads a new field of an object, add the field to the decoded objects.
2. In {RULES / "__init__.py"}, check the kinds (POD_KINDS) and the place in the list:
   violations appear in this order.
3. In {rule.test}, replace the TODO case, then add one case for each branch:
       .venv/bin/pytest {rule.test}
4. Add a case for each message to tests/contract/webhooks/test_messages.py. Delete
   tests/contract/golden/messages.txt, run that test twice, and read the difference.
5. make docs check test-fast
"""


def main(arguments: list[str]) -> int:
    """Create the rule that the only argument names; return the exit status."""
    if len(arguments) != 1 or not arguments[0]:
        print("new-rule: name the rule: make new-rule NAME=max-replicas", file=sys.stderr)
        return 2
    try:
        rule = create(arguments[0])
    except BadNameError as bad:
        print(f"new-rule: {bad}", file=sys.stderr)
        return 2
    print(next_steps(rule), end="")
    return 0


def _imports_rules(node: ast.stmt) -> TypeGuard[ast.ImportFrom]:
    """True for the import of the rules' own modules, relative or absolute."""
    return isinstance(node, ast.ImportFrom) and (
        (node.level == 1 and node.module is None) or node.module == rules.__name__
    )


def _is_list_of_rules(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "RULES"


def _imports(*names: type | Callable[..., object]) -> str:
    """Return the import lines of classes and functions, from the modules that define them."""
    return "".join(sorted(f"from {name.__module__} import {name.__name__}\n" for name in names))


def _source() -> str:
    of_verdict = f"from {verdict.__name__} import NO_FINDINGS, Verdict\n"
    return f'''"""TODO: one sentence: what holds for every object that passes this rule.

Checked: TODO: the fields, and the values that are accepted. Warned of: TODO, or leave this out.

Why: TODO: what goes wrong in a cluster without this rule.

Source: TODO: the document and section, or the upstream code.
"""

{"".join(sorted([*_imports(Facts, Resource).splitlines(keepends=True), of_verdict]))}

def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  {_UNUSED}
    """Check TODO."""
    return NO_FINDINGS
'''


def _cases(rule: NewRule) -> str:
    return f'''"""The rule `{rule.id}`: what it allows, what it refuses, and in which words."""

import pytest

{_imports(decide_admission, Facts)}from reprieve_testing.objects.builders import PodBuilder, a_pod

CASES: dict[str, tuple[PodBuilder, tuple[str, ...]]] = {{
    "a pod without annotations is allowed": (a_pod(), ()),
    "TODO: a pod that breaks the rule is refused": (a_pod(), ("TODO: the violation's text",)),
}}


@pytest.mark.parametrize(("pod", "violations"), CASES.values(), ids=CASES)
def test_violations(pod: PodBuilder, violations: tuple[str, ...]) -> None:
    found = decide_admission(pod.build(), None, Facts()).violations
    assert tuple(str(violation) for violation in found) == violations
'''


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
