"""A training program that polls: the contract "checkpoint now" by annotations.

It needs neither a port nor the agent. The request is an annotation of the program's own pod, which
the kubelet shows it as a file (downward API), a minute late at most. The answer is an annotation
too: the program sets it through the API server, with the token of its pod's ServiceAccount, which
may do that and little else (rbac.yaml, own-pod-only.yaml).
"""

import http.client
import json
import os
import signal
import ssl
import sys
import time
from pathlib import Path

STEPS = int(os.environ.get("STEPS", "600"))
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.2"))
SAVE_SECONDS = float(os.environ.get("SAVE_SECONDS", "1"))  # how long this model takes to write
REQUEST = Path(os.environ.get("REQUEST", "/podinfo/checkpoint-request"))
ACCOUNT = Path(os.environ.get("SERVICE_ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
ANSWER = "reprieve.dev/checkpoint-answer"
CALL_SECONDS = 5.0
AGAIN_SECONDS = float(os.environ.get("AGAIN_SECONDS", "5"))


class Answers:
    """The answer to send; sent again later where the API server is away. Training goes on."""

    def __init__(self) -> None:
        """Begin without an answer."""
        self._unsent: str | None = None
        self._again_at = 0.0

    def send(self, request_id: str, **fields: object) -> None:
        """Send the progress; it replaces an earlier answer that was not sent yet."""
        self._unsent, self._again_at = json.dumps({"id": request_id, **fields}), 0.0
        self.repeat()

    def repeat(self) -> None:
        """Send the answer again where sending it failed, after a pause."""
        if self._unsent is None or time.monotonic() < self._again_at:
            return
        try:
            annotate(self._unsent)
        except (OSError, http.client.HTTPException) as error:
            self._again_at = time.monotonic() + AGAIN_SECONDS
            print(f"answer not sent yet: {error}", flush=True)
        else:
            self._unsent = None


def annotate(answer: str) -> None:
    """Set the answer on this pod, and change nothing else.

    The token is read each time: the kubelet renews it.
    """
    context = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    # Many clusters' certificates lack an extension that Python requires since 3.13.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    namespace = (ACCOUNT / "namespace").read_text().strip()
    path = f"/api/v1/namespaces/{namespace}/pods/{os.environ['POD_NAME']}"
    token = (ACCOUNT / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
    body = json.dumps({"metadata": {"annotations": {ANSWER: answer}}})
    # Not urllib, which would use a proxy where the environment names one.
    connection = http.client.HTTPSConnection(host, port, timeout=CALL_SECONDS, context=context)
    try:
        connection.request("PATCH", path, body, headers)
        response = connection.getresponse()
        if response.status != http.client.OK:
            refusal = response.read(1024).decode(errors="replace")
            raise http.client.HTTPException(f"{response.status} {response.reason}: {refusal}")
    finally:
        connection.close()


def asked() -> str | None:
    """Return the id of the pod's request; `None` without one, or where it was cancelled."""
    text = REQUEST.read_text()
    request = json.loads(text) if text else {}
    return None if request.get("cancelled") else request.get("id")


def main() -> None:
    """Train to the end, or until SIGTERM."""
    signal.signal(signal.SIGTERM, stop)
    answers, first, saved_for = Answers(), resume(), None
    print(f"training from step {first} to {STEPS}", flush=True)
    for step in range(first, STEPS):
        time.sleep(STEP_SECONDS)  # stands for the work
        request_id = asked()
        if request_id in (None, saved_for):
            answers.repeat()
            continue
        answers.send(request_id, state="saving", step=step + 1)
        path = save(step + 1)
        answers.send(request_id, state="saved", step=step + 1, path=str(path))
        saved_for = request_id
    print("finished", flush=True)


def save(step: int) -> Path:
    """Save the state after `step` steps, whole or not at all."""
    path = Path(os.environ["CHECKPOINTS"], f"{os.environ['POD_NAME']}.json")
    unfinished = path.with_suffix(".new")
    time.sleep(SAVE_SECONDS)  # a real model takes longer to write than one number
    unfinished.write_text(json.dumps({"step": step}))
    unfinished.replace(path)
    print(f"saved step {step} to {path}", flush=True)
    return path


def resume() -> int:
    """Return the first step: that of the previous pod's checkpoint, or 0 without one."""
    path = os.environ.get("RESUME_FROM_CHECKPOINT")
    if not path:
        return 0
    step = int(json.loads(Path(path).read_text())["step"])
    print(f"resuming from step {step}, saved in {path}", flush=True)
    return step


def stop(*_: object) -> None:
    """Exit unfinished with 128 + SIGTERM: to a Job, 0 would mean that no work is left."""
    print("stopped by SIGTERM, unfinished", flush=True)
    sys.exit(143)


if __name__ == "__main__":
    main()
