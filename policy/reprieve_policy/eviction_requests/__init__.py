"""The EvictionRequest API (alpha in Kubernetes 1.37): its objects, and Reprieve as a responder."""
