"""Bounded request bodies, and responses written without a framework."""
