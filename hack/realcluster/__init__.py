"""A real Kubernetes control plane on this machine, with simulated (kwok) and real nodes.

The package behind `hack/cluster`. Standard library only: it runs before any virtual environment exists.
"""
