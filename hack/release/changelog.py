"""The changelog: the section of a version, and the cut that makes `Unreleased` one.

A section that is released has `### Upgrade notes`: what an admin does before, with and after the
upgrade, or that there is nothing to do.
"""

import re

UNRELEASED = "## [Unreleased]"
UPGRADE = "### Upgrade notes"


class ChangelogError(ValueError):
    """The changelog cannot be released as it is; the text says what to write."""


def section(text: str, version: str) -> str:
    """Return the section of a version, without its heading."""
    found = re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## \[|\Z)",
        text,
        re.MULTILINE | re.DOTALL,
    )
    if found is None:
        raise ChangelogError(f'CHANGELOG.md has no section "## [{version}] - DATE"')
    body = found[1].strip()
    if not re.search(rf"^{UPGRADE}\n+(?!#).", body, re.MULTILINE):
        raise ChangelogError(
            f'CHANGELOG.md: the section of {version} has no "{UPGRADE}": say what an admin must '
            "do, or that there is nothing to do"
        )
    return body


def cut(text: str, version: str, day: str) -> str:
    """Return the changelog in which what is unreleased is this version's, released on `day`."""
    if f"## [{version}] - " in text:
        return text
    if UNRELEASED not in text:
        raise ChangelogError(f'CHANGELOG.md has no "{UNRELEASED}"')
    return text.replace(UNRELEASED, f"{UNRELEASED}\n\n## [{version}] - {day}", 1)


def notes(text: str, version: str) -> str:
    """Return the release notes: the section, with the upgrade notes first."""
    body = section(text, version)
    parts = re.split(r"^(?=### )", body, flags=re.MULTILINE)
    parts.sort(key=lambda part: not part.startswith(UPGRADE))
    return f"# Reprieve {version}\n\n" + "\n\n".join(part.strip() for part in parts if part) + "\n"
