"""Reads of the API server during a review, of what no watch has: shared, and limited in rate."""
