"""Which text can be the name of an object: the API server's rules for metadata.name (RFC 1123).

Users write names, in options, labels and annotations. Without a check, a name like `../pods` would
choose another path on the API server.
"""

import re

_LABEL = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
OBJECT_NAME = rf"{_LABEL}(?:\.{_LABEL})*"
"""The pattern of a DNS subdomain, of any length."""

_LONGEST_LABEL, _LONGEST_SUBDOMAIN = 63, 253
_LONGEST_UID = 128
"""An API server's uids have 36 letters; in a reference, and where it is stated, it accepts any."""

_label, _subdomain = re.compile(_LABEL), re.compile(OBJECT_NAME)


def is_object_name(text: str) -> bool:
    """True for a DNS subdomain: the name of a pod, a node, a workload or a PriorityClass."""
    return len(text) <= _LONGEST_SUBDOMAIN and _subdomain.fullmatch(text) is not None


def is_namespace_name(text: str) -> bool:
    """True for a DNS label: the name of a Namespace."""
    return len(text) <= _LONGEST_LABEL and _label.fullmatch(text) is not None


def is_uid(text: str) -> bool:
    """True for what may be a uid and is short enough to be kept."""
    return 0 < len(text) <= _LONGEST_UID
