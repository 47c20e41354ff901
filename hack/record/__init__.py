"""Records the reviews that a real API server sends: `tests/contract/reviews/recorded`."""
