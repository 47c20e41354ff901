"""A fixed piece of work, by whose processor time that of our programs is expressed.

It does what they do most: JSON, dictionaries and texts. Run between the turns, it is as fast or as
slow as the machine is then.
"""

from __future__ import annotations

import json
import time

_LOOPS = 3000
_DOCUMENT = {
    f"key-{number}": {"name": f"pod-{number}", "labels": {"a": "b"}, "numbers": list(range(8))}
    for number in range(20)
}


def seconds() -> float:
    """Return the processor time of the work."""
    began = time.process_time()
    for _ in range(_LOOPS):
        document = json.loads(json.dumps(_DOCUMENT))
        sorted(document, key=lambda name: str(document[name]["name"]))
    return time.process_time() - began
