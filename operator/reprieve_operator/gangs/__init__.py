"""Gangs as they start: divergence between members, and scheduling gates that hold a gang back."""
