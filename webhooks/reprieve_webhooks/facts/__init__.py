"""What rules need to know of the cluster, kept by informers or looked up once."""
