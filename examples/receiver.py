"""Receives webhooks: verifies, deduplicates, answers, and only then works. Python 3, no packages.

    PORT=9000 EVERHOOK_SECRET=whsec_... python3 examples/receiver.py

A real service keeps the ids it has seen in its database, for 48 hours, and commits an id together
with the work it stands for.
"""

import base64
import hashlib
import hmac
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

TOLERANCE_S = 300
BODY_BYTES_MAX = 2 * 1024 * 1024

key = base64.b64decode(os.environ["EVERHOOK_SECRET"].removeprefix("whsec_"))
seen, lock = set(), Lock()


def verified(headers, body):
    """Whether these bytes were signed with our secret, and lately."""
    event_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not timestamp.isdigit() or abs(time.time() - int(timestamp)) > TOLERANCE_S:
        return False
    signed = b".".join([event_id.encode(), timestamp.encode(), body])
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    # Two signatures come while an old secret is still live; one that fits is enough.
    given = headers.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(expected.encode(), one.encode()) for one in given)


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        if length > BODY_BYTES_MAX:
            self.close_connection = True
            return self.answer(413)
        body = self.rfile.read(length)
        if not verified(self.headers, body):
            return self.answer(401)
        event_id = self.headers["webhook-id"]
        with lock:
            duplicate = event_id in seen
            seen.add(event_id)
        # A duplicate is a success: it was taken the first time.
        self.answer(200)
        if duplicate:
            print("duplicate", event_id, flush=True)
        else:
            event = json.loads(body)
            print("processed", event["id"], event["type"], flush=True)

    def answer(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Receiver)
print("listening", flush=True)
server.serve_forever()
