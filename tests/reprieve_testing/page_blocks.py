"""The blocks of code that a page shows."""

import re

from reprieve_testing import manifests


def blocks(page: str, kind: str) -> list[str]:
    """Return the text of each block of a kind, such as `python`."""
    text = (manifests.ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
