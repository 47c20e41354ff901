"""Shared by all programs: settings, logs, and a thin client of the API server. It has no rules."""
