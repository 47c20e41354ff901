"""The victims of upstream's own plugin and of Reprieve, compared on the same scenarios."""
