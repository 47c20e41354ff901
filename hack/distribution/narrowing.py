"""What the overlay `cel` takes from the webhooks, as parts of the chart's template.

The overlay's patches add one `matchCondition` to some webhooks. The template has the same
conditions in the same places, between `if` and `end`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

_FILES = {
    "MutatingWebhookConfiguration": "mutating-webhooks.yaml",
    "ValidatingWebhookConfiguration": "validating-webhooks.yaml",
}
_AFTER_CONDITIONS = r"  (?:reinvocationPolicy|failurePolicy): "
"""What follows the conditions of a webhook in the base."""
_TOO_LONG = 10**6
"""No line of an expression is folded anew."""


class _Addition(NamedTuple):
    """A condition that the overlay adds to a webhook."""

    kind: str
    webhook: str
    condition: Any
    is_first: bool
    """The webhook has no other."""


def narrow(text: str, overlay: Path) -> str:
    """Return the text of the webhook configurations with the overlay's conditions."""
    for addition in _additions(overlay):
        text = _insert(text, addition)
    return text


def _additions(overlay: Path) -> Iterator[_Addition]:
    for kind, file in _FILES.items():
        operations = yaml.safe_load((overlay / file).read_text(encoding="utf-8"))
        # A test of its name precedes the patch of each webhook.
        for tested, added in zip(operations[::2], operations[1::2], strict=True):
            is_first = added["path"].endswith("/matchConditions")
            (condition,) = added["value"] if is_first else [added["value"]]
            yield _Addition(kind, tested["value"], condition, is_first)


def _insert(text: str, addition: _Addition) -> str:
    start = text.index(f"\nkind: {addition.kind}\n")
    start = text.index(f"\n- name: {addition.webhook}\n", start)
    found = re.compile(_AFTER_CONDITIONS).search(text, start)
    if found is None:
        raise ValueError(f"{addition.webhook} has nothing after its conditions")
    listed = yaml.safe_dump([addition.condition], sort_keys=False, width=_TOO_LONG)
    lines = ["matchConditions:"] * addition.is_first + listed.splitlines()
    inserted = "".join(f"  {line}\n" for line in lines)
    block = f"  {{{{- if .Values.cel.enabled }}}}\n{inserted}  {{{{- end }}}}\n"
    return text[: found.start()] + block + text[found.start() :]
