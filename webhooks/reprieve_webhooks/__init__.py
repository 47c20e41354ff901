"""The admission server: reviews in, verdicts of the policy out."""
