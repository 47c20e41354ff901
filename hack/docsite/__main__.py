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
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--quiet")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "hack"), "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run((*command, "-f", str(CONFIGURATION)), env=environment, check=False)
    if built.returncode:
        return built.returncode
    if found := list(selfcontained.external(SITE)):
        print("docs-site: pages load from other hosts:", *found, sep="\n  ", file=sys.stderr)
        return 1
    print(f"{SITE}: {sum(1 for _ in SITE.rglob('*.html'))} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
