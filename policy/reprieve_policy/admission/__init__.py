"""Admission: the rules, the defaults and the permissions that a review checks."""
