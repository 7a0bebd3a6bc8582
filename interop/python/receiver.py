"""Judges Everhook's signatures with the official Python library.

Prints `port N`, then answers: `POST /_secret` adds a secret, `POST /_report` lists what was judged
so far, anything else is a webhook.
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

FORGED_SIGNATURE = "v1," + "A" * 43 + "="

secrets: list[str] = []
judged: list[dict] = []


def verifies(secret: str, body: bytes, headers: dict[str, str]) -> bool:
    try:
        Webhook(secret).verify(body, headers)
    except WebhookVerificationError:
        return False
    return True


def judge(body: bytes, headers: dict[str, str]) -> dict:
    forgeries = [
        (body + b" ", headers),
        (body, headers | {"webhook-id": headers["webhook-id"] + "0"}),
        (body, headers | {"webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)}),
        (body, headers | {"webhook-signature": FORGED_SIGNATURE}),
    ]
    return {
        "id": headers["webhook-id"],
        "body": body.decode(),
        "verified": [verifies(secret, body, headers) for secret in secrets],
        "forgeries_verified": sum(
            verifies(secret, *forgery) for secret in secrets for forgery in forgeries
        ),
    }


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        answer = b""
        if self.path == "/_secret":
            secrets.append(body.decode())
        elif self.path == "/_report":
            answer = json.dumps(judged).encode()
        else:
            headers = {name.lower(): value for name, value in self.headers.items()}
            judged.append(judge(body, headers))
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
print("port", server.server_address[1], flush=True)
server.serve_forever()
