"""One module a chapter: `TITLE` and `tell(world, narrator)`, which acts, shows and asserts, and returns what was kept."""
