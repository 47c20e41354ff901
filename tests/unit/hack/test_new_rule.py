"""`make new-rule`: what it writes passes `make check`, and its test fails until it is filled in."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import new_rule

RUFF = Path(sys.executable).parent / "ruff"
REGISTRY = new_rule.RULES / "__init__.py"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copytree(new_rule.ROOT / new_rule.RULES, tmp_path / new_rule.RULES)
    return tmp_path


def files(tree: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in tree.rglob("*.py")}


@pytest.mark.parametrize("name", ["aa-first", "gang-spread", "zz-last"])
def test_the_module_the_line_in_rules_and_the_test_are_created(tree: Path, name: str) -> None:
    before = (tree / REGISTRY).read_text(encoding="utf-8")
    rule = new_rule.create(name, tree)
    added = set((tree / REGISTRY).read_text(encoding="utf-8").splitlines()) - set(
        before.splitlines()
    )
    assert added == {f"    {rule.module},", f'    Rule("{name}", POD_KINDS, {rule.module}.check),'}
    assert (tree / rule.source).is_file()
    assert (tree / rule.test).is_file()


@pytest.mark.parametrize("name", ["aa-first", "gang-spread", "zz-last"])
def test_what_is_created_passes_lint_and_format(tree: Path, name: str) -> None:
    rule = new_rule.create(name, tree)
    for path in (rule.source, rule.test, REGISTRY):
        for command in (["check"], ["format", "--diff"]):
            # Under the file's name in the repository, whose settings apply.
            done = subprocess.run(
                [RUFF, *command, "--no-cache", "--stdin-filename", path, "-"],
                cwd=new_rule.ROOT,
                input=(tree / path).read_text(encoding="utf-8"),
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr


def test_the_created_test_fails_in_its_placeholder_case_only(tree: Path) -> None:
    rule = new_rule.create("gang-spread", tree)
    module: dict[str, object] = {"__name__": "created"}
    exec((tree / rule.test).read_text(encoding="utf-8"), module)
    test, cases = module["test_violations"], module["CASES"]
    assert callable(test)
    assert isinstance(cases, dict)
    allowed, placeholder = cases.values()
    test(*allowed)
    with pytest.raises(AssertionError):
        test(*placeholder)


def test_the_created_rule_finds_no_violation_yet(tree: Path) -> None:
    rule = new_rule.create("gang-spread", tree)
    module: dict[str, object] = {"__name__": "created"}
    exec((tree / rule.source).read_text(encoding="utf-8"), module)
    check = module["check"]
    assert callable(check)
    assert check(None, None, None).is_empty


@pytest.mark.parametrize(
    "name", ["", "Gang", "gang_size", "gang-", "two words", "rule-2", "../rule", "-x"]
)
def test_a_name_that_is_no_id_is_refused_with_the_form_of_one(tree: Path, name: str) -> None:
    before = files(tree)
    with pytest.raises(new_rule.BadNameError, match="lower-case words with hyphens"):
        new_rule.create(name, tree)
    assert files(tree) == before


def test_a_python_keyword_is_refused(tree: Path) -> None:
    with pytest.raises(new_rule.BadNameError, match="Python keyword"):
        new_rule.create("import", tree)


def test_an_id_that_exists_is_refused(tree: Path) -> None:
    with pytest.raises(new_rule.BadNameError, match="RULES already has a rule"):
        new_rule.create("preemption-class", tree)


@pytest.mark.parametrize("which", ["source", "test"])
def test_a_file_that_exists_is_named_and_nothing_is_written(tree: Path, which: str) -> None:
    path: Path = getattr(new_rule.NewRule("gang-spread"), which)
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_text("mine\n")
    before = files(tree)
    with pytest.raises(new_rule.BadNameError, match=f"{path} already exists"):
        new_rule.create("gang-spread", tree)
    assert files(tree) == before


def test_an_absolute_import_of_the_rules_is_found_too() -> None:
    text = (
        f"from {new_rule.rules.__name__} import (\n    agent,\n)\n\n"
        'RULES: tuple[Rule, ...] = (\n    Rule("agent", POD_KINDS, agent.check),\n)\n'
    )
    registered = new_rule.register(text, new_rule.NewRule("gang-spread"))
    assert "    agent,\n    gang_spread,\n)" in registered
    assert registered.endswith('    Rule("gang-spread", POD_KINDS, gang_spread.check),\n)\n')


@pytest.mark.parametrize("arguments", [[], [""], ["one", "two"]])
def test_without_one_name_the_command_prints_its_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert new_rule.main(arguments) == 2
    assert "make new-rule NAME=" in capsys.readouterr().err


def test_a_bad_name_ends_the_command_with_a_line_and_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert new_rule.main(["preemption-class"]) == 2
    assert (
        capsys.readouterr().err
        == 'new-rule: "preemption-class": RULES already has a rule with this id\n'
    )


def test_the_next_steps_name_the_created_files() -> None:
    rule = new_rule.NewRule("gang-spread")
    steps = new_rule.next_steps(rule)
    assert str(rule.source) in steps
    assert f"pytest {rule.test}" in steps
