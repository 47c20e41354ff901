"""Replaces what differs between recordings: uids, versions, times, random names, addresses."""

from __future__ import annotations

import json
import re
from typing import Any

Json = Any

_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_VERSION = re.compile(r'("resourceVersion": )"(\d+)"')
_GENERATED = re.compile(r"(kube-api-access-)[a-z0-9]{5}\b")
_ADDRESS = re.compile(r"\b127\.\d+\.\d+\.\d+\b")
_NODE = re.compile(r"\bkwok-\d+\b")
_CRON_SUFFIX = re.compile(r"(\b[a-z]+)-\d{8}\b")


def make_stable(review: Json, *, keep_managed_fields: bool) -> Json:
    """Return the review with one stand-in for each random value, the same wherever it appears."""
    for which in ("object", "oldObject"):
        metadata = (review["request"].get(which) or {}).get("metadata") or {}
        if not keep_managed_fields:
            metadata.pop("managedFields", None)
    text = json.dumps(review, indent=2)
    text = _without_random_names(text, review)
    text = _numbered(_UUID, text, lambda number: f"00000000-0000-4000-8000-{number:012}")
    text = _TIME.sub(lambda found: "2026-11-21T12:00:00" + (".000000Z" if found[1] else "Z"), text)
    text = _numbered(_VERSION, text, lambda number: f'"resourceVersion": "{number}"')
    text = _NODE.sub("kwok-0", text)
    text = _ADDRESS.sub(
        "127.0.0.1", _GENERATED.sub(r"\1aaaaa", _CRON_SUFFIX.sub(r"\1-00000000", text))
    )
    return json.loads(text)


def _without_random_names(text: str, review: Json) -> str:
    request = review["request"]
    for which in ("object", "oldObject"):
        metadata = (request.get(which) or {}).get("metadata") or {}
        prefix, name = metadata.get("generateName", ""), metadata.get("name", "")
        if prefix and name.startswith(prefix) and len(name) == len(prefix) + 5:
            text = text.replace(name, f"{prefix}aaaaa")
    return text


def _numbered(pattern: re.Pattern[str], text: str, stand_in: Any) -> str:
    seen: dict[str, str] = {}
    return pattern.sub(lambda found: seen.setdefault(found[0], stand_in(len(seen) + 1)), text)
