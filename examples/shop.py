"""A service that knows nothing of idempotency: every POST to /orders makes another order.

    PORT=3000 python3 examples/shop.py
"""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

numbers = count(1)


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(201, f"order {next(numbers)}")

    def do_GET(self):
        self.answer(200, "a shop")

    def answer(self, status, text):
        body = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "3000"))), Shop)
print("listening", flush=True)
server.serve_forever()
