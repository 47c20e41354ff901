"""Pods on simulated nodes as processes of this machine, where no real node can run."""
