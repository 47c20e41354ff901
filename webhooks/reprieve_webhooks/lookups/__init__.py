"""Reads of the API server during a review: shared while they are under way, limited in rate."""
