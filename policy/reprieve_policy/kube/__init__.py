"""What Kubernetes objects are and say: decoded objects, kinds, owners, quantities and durations."""
