"""What the CEL overlay gives an API server to evaluate for a review, as its manifest says.

The API server's processor time is measured by `make bench-admission`. These counts say sooner that
a policy has got a condition more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from realcluster.install import MANIFESTS

_POLICIES = MANIFESTS / "overlays" / "cel" / "policies.yaml"
_EXPRESSIONS = ("expression", "messageExpression")


def measure() -> dict[str, float]:
    """Return the figures."""
    documents = [each for each in yaml.safe_load_all(_POLICIES.read_text()) if each]
    expressions = [text for each in documents for text in _expressions(each)]
    return {
        "CEL overlay: bytes of expressions": sum(len(text.encode()) for text in expressions),
        "CEL overlay: expressions": len(expressions),
        "CEL overlay: policies": sum(each["kind"].endswith("Policy") for each in documents),
    }


def _expressions(value: Any) -> Iterator[str]:
    """Yield the expressions below a value of a manifest."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in _EXPRESSIONS and isinstance(item, str):
                yield item
            else:
                yield from _expressions(item)
    elif isinstance(value, list):
        for item in value:
            yield from _expressions(item)
