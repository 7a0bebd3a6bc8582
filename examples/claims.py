"""Sends an invoice once, however many workers are told to send it.

    EVERHOOK_TOKEN=ek_... python3 claims.py 2026-0042

Needs nothing but Python 3. EVERHOOK_SERVER names another server than http://127.0.0.1:8080;
WORK_SECONDS is how long the work takes, LEASE_MS how long a worker that died is waited for.
"""

import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request

SERVER = os.environ.get("EVERHOOK_SERVER", "http://127.0.0.1:8080")
LEASE_MS = int(os.environ.get("LEASE_MS", "10000"))
WAIT_MS = 20_000


class Lost(Exception):
    """The claim is somebody else's by now: stop, and undo what can be undone."""


def call(method, path, body=None):
    """The status and the body of an answer of the claim API."""
    request = urllib.request.Request(
        f"{SERVER}/api/v1/claims{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {os.environ['EVERHOOK_TOKEN']}",
            "Content-Type": "application/json",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=WAIT_MS / 1000 + 10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def own(claim, verb, **more):
    """Says something about a claim that we hold."""
    status, answer = call("POST", f"/{claim['id']}/{verb}", {"token": claim["token"], **more})
    if status in (404, 409):
        raise Lost(answer["detail"])
    if status != 200:
        raise RuntimeError(answer)
    return answer


def keep(claim, done):
    """Renews the lease at every third of it, until the work is done."""
    while not done.wait(LEASE_MS / 3000):
        try:
            own(claim, "renew", lease_ms=LEASE_MS)
        except Lost:
            return
        except OSError as error:
            # The next try may still be in time; if not, `complete` will tell.
            print("not renewed:", error, file=sys.stderr)


def once(scope, key, work):
    """The result of the work for this key: done now, or before, by us or by somebody else."""
    wanted = {"scope": scope, "key": key, "lease_ms": LEASE_MS, "ttl_s": 86_400}
    while True:
        status, claim = call("POST", "", wanted)
        if status != 200:
            raise RuntimeError(claim)
        outcome = claim["outcome"]
        if outcome == "completed":
            print("done before", json.dumps(claim["result"]), flush=True)
            return claim["result"]
        if outcome == "in_progress":
            print("waiting", flush=True)
            # Answered as soon as it ends, however that is; then the key is claimed again.
            call("GET", f"/{claim['id']}?wait_ms={WAIT_MS}")
            continue
        # `reclaimed`: a worker began and was not heard of again. What it did may be done already,
        # so the work must look first, or be harmless twice.
        print("working", outcome, flush=True)
        done = threading.Event()
        keeper = threading.Thread(target=keep, args=(claim, done), daemon=True)
        keeper.start()
        try:
            result = work(key)
        except Exception:
            # Only because it is known that nothing was sent.
            own(claim, "release")
            raise
        finally:
            done.set()
            keeper.join()
        own(claim, "complete", result=result)
        print("done", json.dumps(result), flush=True)
        return result


def send_invoice(number):
    """Where the invoice would be sent."""
    time.sleep(float(os.environ.get("WORK_SECONDS", "0")))
    return {"sent": number}


if __name__ == "__main__":
    once("invoices", sys.argv[1], send_invoice)
