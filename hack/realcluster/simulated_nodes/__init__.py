"""Simulated nodes: kwok in the place of a kubelet, and what its pods do at each stage."""
