"""What MkDocs calls while it builds the site; see its page on hooks."""

from pathlib import Path
from typing import Any

from docsite import dialect, navigation


def on_config(config: Any) -> Any:
    """Give headings GitHub's anchors, and replace the patterns of the navigation by pages."""
    config["mdx_configs"]["toc"]["slugify"] = dialect.anchor
    source = Path(config["docs_dir"])
    pages = [str(page.relative_to(source)) for page in source.rglob("*.md")]
    config["nav"] = navigation.expanded(config["nav"], pages)
    return config
