"""An API server that waits for the webhooks however busy the machine is."""

import json

from realcluster.client.kubectl import Kubectl


def wait_longer_for_reviews(kubectl: Kubectl) -> None:
    """Let the API server wait half a minute for a review, until the manifests are applied again.

    With the base's 3 s, an object passes unchecked, or a deletion without notice, where other tests
    take all processors.
    """
    for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        count = len(kubectl.get(kind, "reprieve-webhooks")["webhooks"])
        operations = [
            {"op": "replace", "path": f"/webhooks/{index}/timeoutSeconds", "value": 30}
            for index in range(count)
        ]
        patch = ("--type=json", "-p", json.dumps(operations))
        kubectl.read("patch", kind, "reprieve-webhooks", *patch)
