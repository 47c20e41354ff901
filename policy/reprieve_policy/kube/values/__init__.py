"""What Kubernetes writes as text: quantities, durations, timestamps, integers, JSON."""
