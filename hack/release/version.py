"""The version of this tree: `make version VERSION=0.2.0` changes each place that says it.

`pyproject.toml` has the version; the other places repeat it because a user reads or applies them as
they are. Programs say the version that their installed package has.
"""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

VERSION = re.compile(r"(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)")
"""Three numbers, which Python packages, Helm charts and image tags all write alike."""
WRITTEN = (
    r'(?m)^(version = "){}(?="$)',  # pyproject.toml of each package
    r"(\breprieve:){}(?![\w.-])",  # the image
    r"(\breprieve:){}(?=-(?:amd64|arm64)\b)",  # of one architecture
    r"(\breprieve-){}(?=(?:-(?:amd|arm)64)?\.(?:oci\.tar|cdx\.json|tgz|tar\.gz)|-py3)",  # files
    r"(\bapp\.kubernetes\.io/version: \"?){}(?![\w.-])",
    r"(?m)^((?:version|appVersion): \"?){}(?=\"?$)",  # Chart.yaml
)
"""How the version is written, with `{}` for the version itself."""
NOT_OURS = re.compile(
    r"^tests/|^CHANGELOG\.md$|^docs/benchmarks\.md$|^hack/bench/measured/|\.lock$"
    r"|/go\.(?:mod|sum)$|\.(?:png|svg)$"
)
"""Files that name versions of other things, or past ones of ours."""


def current(root: Path) -> str:
    """Return the version in `pyproject.toml`."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text)["project"]["version"])


def rewritten(text: str, old: str, new: str) -> str:
    """Return a file's text with the version changed wherever it is ours."""
    if old not in text:
        return text
    for pattern in WRITTEN:
        text = re.sub(pattern.format(re.escape(old)), rf"\g<1>{new}", text)
    return text


def files(root: Path) -> Iterator[Path]:
    """Yield the tracked files that may say our version."""
    listed = subprocess.run(
        ("git", "ls-files", "-z"), cwd=root, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.split("\0"):
        if name and not NOT_OURS.search(name) and (root / name).is_file():
            yield root / name


def change(root: Path, new: str) -> list[Path]:
    """Write the new version into each place; return the files that changed."""
    old, changed = current(root), []
    for file in files(root):
        text = file.read_text(encoding="utf-8")
        after = rewritten(text, old, new)
        if after != text:
            file.write_text(after, encoding="utf-8")
            changed.append(file.relative_to(root))
    return changed
