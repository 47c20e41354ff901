"""`make release` and `make version`: what a release consists of, and the one version that all say.

`parts` is the table of what is built. `version` knows where the version is written, `changelog`
reads and cuts the changelog, `checks` says why a tree cannot be released, `dist` writes the notes,
the checksums and the listing.
"""
