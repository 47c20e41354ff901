"""What rules need to know of the cluster, kept by watches or read once."""
