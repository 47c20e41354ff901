"""The conditions of the overlay `cel`, inserted into the text of the webhook configurations."""

from pathlib import Path

import pytest

from distribution import narrowing

TEXT = """\
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
webhooks:
- name: pods.test
  reinvocationPolicy: IfNeeded
  failurePolicy: Ignore
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
webhooks:
- name: pods.test
  matchConditions:
  - name: known
    expression: "true"
  failurePolicy: Ignore
- name: others.test
  failurePolicy: Ignore
"""
NARROWED = """\
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
webhooks:
- name: pods.test
  {{- if .Values.cel.enabled }}
  matchConditions:
  - name: more
    expression: 'false'
  {{- end }}
  reinvocationPolicy: IfNeeded
  failurePolicy: Ignore
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
webhooks:
- name: pods.test
  matchConditions:
  - name: known
    expression: "true"
  {{- if .Values.cel.enabled }}
  - name: more
    expression: 'false'
  {{- end }}
  failurePolicy: Ignore
- name: others.test
  failurePolicy: Ignore
"""
CONDITION = '{name: more, expression: "false"}'


def patches(directory: Path, webhook: str) -> Path:
    """Write an overlay that adds a condition to this webhook of both configurations."""
    name = f"- {{op: test, path: /webhooks/0/name, value: {webhook}}}\n"
    added = "- op: add\n  path: /webhooks/0/matchConditions"
    (directory / "mutating-webhooks.yaml").write_text(f"{name}{added}\n  value: [{CONDITION}]\n")
    (directory / "validating-webhooks.yaml").write_text(f"{name}{added}/-\n  value: {CONDITION}\n")
    return directory


def test_each_condition_is_inserted_where_the_overlay_adds_it(tmp_path: Path) -> None:
    assert narrowing.narrow(TEXT, patches(tmp_path, "pods.test")) == NARROWED


def test_a_webhook_that_the_text_does_not_have_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="substring not found"):
        narrowing.narrow(TEXT, patches(tmp_path, "gone.test"))
