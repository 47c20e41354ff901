"""Judging manifests by the rules of admission, without a cluster."""
