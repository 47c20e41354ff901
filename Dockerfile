# syntax=docker/dockerfile:1
# One image for all programs and the command line. Not built by this repository's own commands, which need no container runtime: `docker build -t reprieve:0.1.0 .`

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
RUN /opt/reprieve/bin/pip install --no-cache-dir . \
 && /opt/reprieve/bin/pip uninstall --yes pip \
 && /opt/reprieve/bin/reprieve-webhooks --version \
 && /opt/reprieve/bin/reprieve-operator --version \
 && /opt/reprieve/bin/reprieve-agent --version \
 && /opt/reprieve/bin/reprieve --version \
 && /opt/reprieve/bin/kubectl-reprieve --version

FROM python:3.13-slim-bookworm
COPY --from=build /opt/reprieve /opt/reprieve
# Compiled at build time: the root file system is read-only in the cluster. The user below has no entry in /etc/passwd, so
# nobody else says where its home is.
ENV PATH=/opt/reprieve/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/
# A number, so that runAsNonRoot holds without a look into /etc/passwd.
USER 65532:65532
# No entry point: the manifests say which of the programs to run.
CMD ["reprieve-webhooks", "--help"]
