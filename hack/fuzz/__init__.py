"""Hostile reviews and hostile clients against the running admission server.

`__main__.py` says what must hold. Each case depends only on the seed and its own number, so that a
failing case can be repeated alone.
"""
