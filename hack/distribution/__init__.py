"""What is shipped to install Reprieve, besides image and packages: the chart and `install.yaml`.

Both come from `manifests`, which is the only source of what is installed.
"""
