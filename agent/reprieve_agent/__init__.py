"""The agent in a pod. It uses only the standard library, because it runs in many pods."""
