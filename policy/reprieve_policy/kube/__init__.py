"""Kubernetes' own formats: decoded objects, kinds, owners, quantities, durations, timestamps."""
