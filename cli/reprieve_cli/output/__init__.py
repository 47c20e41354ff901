"""Findings, progress and explanations, and the formats in which they are printed."""
