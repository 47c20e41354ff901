"""Reads of the API server that a review waits for: shared while under way, limited in rate."""
