"""Open ports that no client can exhaust, who may read the metrics, and the limit of files."""
