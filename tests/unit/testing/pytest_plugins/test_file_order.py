"""In which order test files run."""

from pathlib import Path

from reprieve_testing.pytest_plugins.file_order import in_order

FILES = {
    Path(f"{folder}/test_{number:02}.py"): folder
    for folder in ("chaos", "cluster", "contract", "integration", "unit")
    for number in range(20)
}


def folders_in_order() -> list[str]:
    return [FILES[file] for file in in_order(FILES)]


def test_every_file_runs_once_also_one_of_a_new_folder() -> None:
    files = FILES | {Path("new/test_a.py"): "new"}
    assert sorted(in_order(files)) == sorted(files)


def test_cluster_tests_begin_with_those_that_take_longest() -> None:
    assert folders_in_order()[:40] == ["chaos"] * 20 + ["cluster"] * 20


def test_integration_tests_run_beside_others_and_none_is_among_the_last() -> None:
    others = folders_in_order()[40:]
    first_half, second_half = others[:30], others[30:]
    assert 10 <= first_half.count("integration") <= 12
    assert second_half.count("integration") == 20 - first_half.count("integration")
    assert "integration" not in second_half[-3:]


def test_the_files_of_a_folder_keep_their_order() -> None:
    units = [file for file in in_order(FILES) if FILES[file] == "unit"]
    assert units == sorted(units)


def test_one_folder_alone_keeps_its_order() -> None:
    units = {file: folder for file, folder in FILES.items() if folder == "unit"}
    assert in_order(units) == list(units)
