"""The container image of all programs, made without a container engine: `make image`."""
