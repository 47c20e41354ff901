"""`make docs-site`: the pages of this repository as a web site, in the folder `site`.

The pages stay as GitHub and an editor show them. `sources` copies them, in the layout of the
repository, so that every link between them holds; `dialect` rewrites what the site's Markdown
reads differently; `hooks` is called by MkDocs; `selfcontained` finds what a page would load from
elsewhere. `mkdocs.yml` has the navigation.
"""
