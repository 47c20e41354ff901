"""Checks manifests against the rules of admission, without a cluster."""
