"""One module for each chapter: `TITLE`, and `run(installation, narrator)`.

`run` acts, shows and asserts, and returns a sentence that says which promise was kept.
"""
