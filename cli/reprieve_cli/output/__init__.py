"""Findings, and how they are written."""
