"""`python -m distribution templates|chart|install-yaml`: see the make targets."""

import argparse
import sys
from pathlib import Path

from . import archive, image, install_yaml, templates

DIST = templates.ROOT / "dist"


def main() -> int:
    """Run one command; return the exit status."""
    options = _options()
    if options.command == "templates":
        _write_templates()
        return 0
    try:
        named = image.parse(options.image) if options.image else None
    except ValueError as error:
        print(f"IMAGE: {error}", file=sys.stderr)
        return 2
    options.dist.mkdir(parents=True, exist_ok=True)
    writers = {"chart": archive.write, "install-yaml": install_yaml.write}
    print(writers[options.command](options.dist, named))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="distribution")
    parser.add_argument("command", choices=["templates", "chart", "install-yaml"])
    parser.add_argument("--dist", type=Path, default=DIST)
    parser.add_argument("--image", default="")
    return parser.parse_args()


def _write_templates() -> None:
    for name, text in templates.render().items():
        (templates.CHART / "templates" / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
