"""The cluster as kube-scheduler sees it: a cache of pods and nodes that the extender and the guard read."""
