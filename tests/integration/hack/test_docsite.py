"""`make docs-site` builds the site without a warning, and it loads nothing from elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_the_site_is_built_without_a_warning() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "hack")}
    built = subprocess.run(
        (sys.executable, "-m", "docsite"), cwd=ROOT, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    for page in ("index.html", "docs/contract/index.html", "manifests/index.html"):
        assert "Reprieve" in (ROOT / "site" / page).read_text(encoding="utf-8")
    assert 'id="an-hour-of-random-faults"' in (
        ROOT / "site" / "docs" / "development" / "index.html"
    ).read_text(encoding="utf-8")
