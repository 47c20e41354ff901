"""Reads manifests in YAML and JSON, with the line of each field."""
