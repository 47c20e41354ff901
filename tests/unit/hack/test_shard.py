"""The parts of a sharded run: every test file is in exactly one, and they weigh about the same."""

from pathlib import Path

import pytest

import shard

TESTS = Path(__file__).resolve().parents[2]
FOLDERS = [TESTS / "cluster", TESTS / "differential"]


@pytest.mark.parametrize("parts", [1, 2, 4, 7])
def test_every_file_is_in_exactly_one_part(parts: int) -> None:
    weights = shard.weigh(FOLDERS)
    shards = shard.divide(weights, parts)
    assert len(shards) == parts
    assert sorted(path for part in shards for path in part) == sorted(weights)


def test_parts_weigh_about_the_same() -> None:
    weights = {Path(f"test_{index}.py"): index for index in range(1, 21)}
    sums = [sum(weights[path] for path in part) for part in shard.divide(weights, 4)]
    assert max(sums) - min(sums) <= 3


def test_tests_are_counted_also_where_they_are_coroutines(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        "def test_a(): ...\nasync def test_b(): ...\ndef helper(): ...\n"
    )
    assert shard.weigh([tmp_path]) == {tmp_path / "test_x.py": 2}


@pytest.mark.parametrize("arguments", [[], ["3"], ["0/4"], ["5/4"], ["a/b"]])
def test_a_part_that_does_not_exist_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert shard.main(arguments) == 2
    assert "SHARD=2/4" in capsys.readouterr().err


def test_the_files_of_a_part_are_printed_on_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text("def test_x(): ...\n")
    assert shard.main(["2/2", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'test_b.py'}\n"
