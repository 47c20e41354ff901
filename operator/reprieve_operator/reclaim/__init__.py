"""Lent nodes that the operator gives back to their home Namespaces (`reclaim: auto`)."""
