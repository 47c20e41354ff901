"""Real nodes: a kubelet, containerd and runc each, and the container images they hold."""
