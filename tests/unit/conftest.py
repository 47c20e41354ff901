"""Unit tests are quick and repeatable: property tests try a fixed, small set of examples."""

from hypothesis import settings

settings.register_profile("unit", max_examples=25, deadline=None, database=None, derandomize=True)
settings.load_profile("unit")
