"""Pods that are placed and evicted together: membership, divergence, disruption, gates."""
