"""Open ports that no client can exhaust, metrics on a port of their own, and the limit of files."""
