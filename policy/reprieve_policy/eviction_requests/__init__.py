"""The EvictionRequest API (alpha in Kubernetes 1.37): its objects, and what a responder says in them."""
