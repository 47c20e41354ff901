"""One module for each chapter: `TITLE`, and `tell(world, narrator)`.

`tell` acts, shows and asserts, and returns a sentence that says which promise was kept.
"""
