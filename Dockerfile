# syntax=docker/dockerfile:1
# One image for all programs and the command line: `docker build -t reprieve:0.1.0 .`
# The make targets do not build it: they need no container runtime.

FROM python:3.13-slim-bookworm AS build
RUN python -m venv /opt/reprieve
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY policy policy
COPY runtime runtime
COPY certs certs
COPY webhooks webhooks
COPY operator operator
COPY agent agent
COPY cli cli
COPY cleaners cleaners
RUN /opt/reprieve/bin/pip install --no-cache-dir . \
 && /opt/reprieve/bin/pip uninstall --yes pip \
 && /opt/reprieve/bin/reprieve-webhooks --version \
 && /opt/reprieve/bin/reprieve-operator --version \
 && /opt/reprieve/bin/reprieve-agent --version \
 && /opt/reprieve/bin/reprieve --version \
 && /opt/reprieve/bin/kubectl-reprieve --version

FROM python:3.13-slim-bookworm
COPY --from=build /opt/reprieve /opt/reprieve
# pip compiled the modules at build time: the root file system is read-only in the cluster. HOME is
# set because the user below has no entry in /etc/passwd.
ENV PATH=/opt/reprieve/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/
# A number: for a name, the kubelet could not check runAsNonRoot.
USER 65532:65532
# No entry point: the manifests say which of the programs to run.
CMD ["reprieve-webhooks", "--help"]
