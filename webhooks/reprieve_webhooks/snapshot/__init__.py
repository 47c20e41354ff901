"""The cluster as kube-scheduler sees it: a cache of pods, nodes and budgets.

The extender and the guard read it.
"""
