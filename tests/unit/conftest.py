"""Unit tests are quick and repeatable: property tests try a fixed, small set of examples.

`make test-fast` sets `REPRIEVE_EXAMPLES` to try fewer.
"""

import os

from hypothesis import settings

EXAMPLES = int(os.environ.get("REPRIEVE_EXAMPLES", "25"))

settings.register_profile(
    "unit", max_examples=EXAMPLES, deadline=None, database=None, derandomize=True
)
settings.load_profile("unit")
