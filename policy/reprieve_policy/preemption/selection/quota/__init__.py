"""Quotas: whether a preemptor fits into its own, with and without its victims."""
