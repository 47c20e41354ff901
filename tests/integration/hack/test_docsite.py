"""`make docs-site` builds the site without a warning, and it loads nothing from elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docsite import __main__ as docsite

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


@pytest.mark.slow
@pytest.mark.parametrize("link", ["nowhere.md", "docs/contract.md#nothing"])
def test_a_broken_link_fails_the_build(
    link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration = docsite.CONFIGURATION.read_text(encoding="utf-8")
    hooks = docsite.CONFIGURATION.with_name("hooks.py")
    for old, new in (
        ("../../build/site-source", "pages"),
        ("../../site", "site"),
        ("[hooks.py]", f"[{hooks}]"),
    ):
        assert old in configuration
        configuration = configuration.replace(old, new)
    head, _, _ = configuration.partition("\nnav:\n")
    (tmp_path / "mkdocs.yml").write_text(f"{head}\nnav: [README.md, docs/contract.md]\n")
    (tmp_path / "pages" / "docs").mkdir(parents=True)
    (tmp_path / "pages" / "docs" / "contract.md").write_text("# Contract\n")
    page = tmp_path / "pages" / "README.md"
    monkeypatch.setattr(docsite, "CONFIGURATION", tmp_path / "mkdocs.yml")
    page.write_text("# Page\n[contract](docs/contract.md#contract)\n")
    assert docsite.build() == 0
    page.write_text(f"# Page\n[broken]({link})\n")
    assert docsite.build() == 1
