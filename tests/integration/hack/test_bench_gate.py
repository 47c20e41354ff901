"""The gate counts the same twice, and finds a review that became dearer."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.gate import __main__ as gate
from bench.gate import comparison
from realcluster.progress import Progress
from reprieve_testing import manifests

PARTS = ["reviews"]
DEARER = """
from reprieve_policy.admission import review

decide = review.decide_admission


def decide_twice(*arguments, **options):
    decide(*arguments, **options)
    return decide(*arguments, **options)


review.decide_admission = decide_twice
"""
"""Python imports it before everything else."""


@pytest.mark.heavy  # counts all reviews in three processes
def test_unchanged_code_passes_twice_and_a_dearer_review_fails(
    tmp_path: Path,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(DEARER)
    folders = [str(tmp_path), str(manifests.ROOT / "hack"), str(manifests.ROOT / "tests")]
    usual = {**gate.ENVIRONMENT, "PYTHONPATH": os.pathsep.join(folders[1:])}
    environments = [usual, usual, {**usual, "PYTHONPATH": os.pathsep.join(folders)}]
    with ThreadPoolExecutor() as pool:
        first, second, dearer = pool.map(
            lambda environment: gate.count(PARTS, Progress(), environment), environments
        )
    assert [row.sentence for row in comparison.compare(first, second) if row.is_failure] == []
    grown = {row.name for row in comparison.compare(first, dearer) if row.is_failure}
    # The answer for a known template is remembered: it decides nothing.
    assert grown == {
        name for name in first if "validating, first" in name and name.endswith(": calls")
    }
