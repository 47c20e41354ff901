"""Gangs as they start: pods of a gang that differ, and scheduling gates that hold a gang back."""
