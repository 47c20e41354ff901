"""Hostile reviews and hostile clients against the running admission server. See `__main__.py` for what must hold.

Every case is made from the seed and its own number alone, whatever else runs beside it: one that fails can be run again
by itself.
"""
