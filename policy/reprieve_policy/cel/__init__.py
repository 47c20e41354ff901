"""The table as CEL: policies that the API server evaluates itself, without a call and so without an outage.

`policies.render` gives ValidatingAdmissionPolicies and MutatingAdmissionPolicies with their bindings, as documents. They
refuse what the rules refuse, in the same words and the same order, as far as the object and its Namespace tell; what
needs other objects, or JSON to be read, stays with the webhooks. Texts and values come from the modules that Python runs;
what is written here a second time is how values are combined, and `tests/differential` holds both against each other.
"""
