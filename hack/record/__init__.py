"""Records what a real API server asks a webhook about: the reviews of `tests/contract/reviews/recorded`."""
