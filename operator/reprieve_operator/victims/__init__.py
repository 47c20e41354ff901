"""One reconciler per victim, from its mark to its deletion, and gangs that are evicted together."""
