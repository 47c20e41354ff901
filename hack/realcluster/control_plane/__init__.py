"""etcd and the Kubernetes control plane: their processes, keys, certificates, configuration."""
