"""Objects that limit what others may use or lose: quotas, and disruption budgets."""
