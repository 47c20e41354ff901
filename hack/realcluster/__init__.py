"""A real Kubernetes control plane on this machine, with simulated (kwok) and real nodes.

The package behind `hack/cluster`. It uses the standard library only, because it runs before any
virtual environment exists.
"""
