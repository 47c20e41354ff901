"""JSON that is nested as deeply as an API server stores it.

Python's own encoder ends at about a thousand levels, so a marker takes the place of the value.
"""

import json
from typing import Any

_MARKER = "a value of two thousand levels"
_LEVELS = 2000
MANAGED_FIELDS = [
    {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsV1": {"f:a": _MARKER}}
]
"""Any user can write such an entry, and the API server keeps it."""


def dumps(document: Any) -> str:
    """Return the JSON of a document that may have such fields."""
    value = '{"f:x":' * _LEVELS + "{}" + "}" * _LEVELS
    return json.dumps(document).replace(f'"{_MARKER}"', value)


def deepened(document: dict[str, Any]) -> dict[str, Any]:
    """Return an object of the API whose managed fields are nested that deeply."""
    return {**document, "metadata": {**document["metadata"], "managedFields": MANAGED_FIELDS}}
