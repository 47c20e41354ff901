"""Adapters for frameworks. Each module imports its framework, and no other module imports it."""
