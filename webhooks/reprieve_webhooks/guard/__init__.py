"""Notice for victims of any scheduler, drain or autoscaler: reviews of deletions and evictions. What is ruled is `policy.guarding`'s."""
