"""Receives webhooks and works on each of them once: FastAPI, the official packages of Redis and of
Standard Webhooks.

    pip install -r requirements.txt
    EVERHOOK_SECRET=whsec_... REDIS_URL=redis://127.0.0.1:6379 uvicorn app:app --port 9000

Whoever sends webhooks sends some of them more than once: when an answer was lost, when it came too
late, when somebody replays. So an id is claimed before anything is done, for a short time only: if
this process dies, the claim lapses and the next attempt works on it. What was done is remembered
for longer than the sender's last attempt, and answered with a success at once.
"""

import logging
import os
import secrets

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from redis.asyncio import Redis
from redis.exceptions import RedisError
from standardwebhooks.webhooks import Webhook

# How long a claim belongs to a handler that is not heard of: longer than any handler takes.
LEASE_MS = 30_000
# How long an event is remembered as done: the sender's last attempt comes a day after the first.
DONE_S = 48 * 3600
BODY_BYTES_MAX = 2 * 1024 * 1024

app = FastAPI()
webhook = Webhook(os.environ["EVERHOOK_SECRET"])
redis = Redis.from_url(os.environ["REDIS_URL"], decode_responses=True)
log = logging.getLogger("uvicorn.error")


def ours(command):
    """Changes the key only while it holds our own claim: who was late must not undo another's."""
    return redis.register_script(
        f"if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end {command} return 1"
    )


finish = ours(f"redis.call('SET', KEYS[1], 'done', 'EX', {DONE_S})")
release = ours("redis.call('DEL', KEYS[1])")


async def handle(event):
    """Works on an event; raises if it could not be done, and the sender tries again. Here it is
    counted, so that anybody can see how often that was."""
    await redis.hincrby("handled", event["id"], 1)


@app.post("/")
async def receive(request: Request):
    # The bytes as they came: the signature is over them, not over what a parser makes of them.
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            return answer(413, "too large")
    try:
        event = webhook.verify(bytes(body), dict(request.headers))
    except Exception:
        return answer(401, "not verified")
    key, claim = f"webhook:{request.headers['webhook-id']}", secrets.token_hex(16)
    if not await redis.set(key, claim, nx=True, px=LEASE_MS):
        if await redis.get(key) == "done":
            return answer(200, "duplicate")
        # Another request works on it, and may fail yet. The sender comes back.
        return answer(409, "in progress", {"retry-after": "1"})
    try:
        await handle(event)
    except Exception:
        log.exception("%s could not be handled", event["id"])
        await release(keys=[key], args=[claim])
        return answer(500, "failed")
    await finish(keys=[key], args=[claim])
    return answer(200, "processed")


@app.exception_handler(RedisError)
async def redis_is_away(_request, error):
    """Nothing was done, or it will be found out by the next attempt."""
    log.error("redis: %s", error)
    return answer(503, "failed")


def answer(status, word, headers=None):
    return JSONResponse({"status": word}, status, headers)
