"""A review from its decoding to its response."""
