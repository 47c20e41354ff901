"""Pods that are placed and evicted together: membership, dialects, divergence, gates."""
