"""Build the site; a warning of MkDocs is an error, as is what a page loads from elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import yaml

from docsite import selfcontained, sources

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = ROOT / "hack" / "docsite" / "mkdocs.yml"
SOURCE = ROOT / "build" / "site-source"
SITE = ROOT / "site"


def main() -> int:
    """Write the site; return the exit status."""
    entries = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))["nav"]
    sources.stage(ROOT, SOURCE, sources.pages(ROOT, entries))
    if status := build():
        return status
    if found := list(selfcontained.external(SITE)):
        print("docs-site: pages load from other hosts:", *found, sep="\n  ", file=sys.stderr)
        return 1
    print(f"{SITE}: {sum(1 for _ in SITE.rglob('*.html'))} pages")
    return 0


def build() -> int:
    """Have MkDocs build the site; return its exit status, 1 where it warns."""
    # Not --quiet: then MkDocs counts no warning, and --strict has no effect.
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(CONFIGURATION))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "hack"), "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
