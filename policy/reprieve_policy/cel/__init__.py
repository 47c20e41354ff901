"""The rules as CEL: policies that the API server evaluates itself, without a call or an outage.

`policies.render` returns ValidatingAdmissionPolicies and MutatingAdmissionPolicies with their
bindings, as documents. They refuse what the rules refuse, in the same words and order, as far as
the object and its Namespace tell; whatever needs other objects, or JSON to be read, stays with the
webhooks. Texts and values come from the modules that Python runs. How values are combined is
written a second time here, and `tests/differential` compares both.
"""
