// Receives webhooks and works on each of them once: Express, the official packages of Redis and of
// Standard Webhooks.
//
//     npm ci
//     PORT=9000 EVERHOOK_SECRET=whsec_... REDIS_URL=redis://127.0.0.1:6379 node server.mjs
//
// Whoever sends webhooks sends some of them more than once: when an answer was lost, when it came
// too late, when somebody replays. So an id is claimed before anything is done, for a short time
// only: if this process dies, the claim lapses and the next attempt works on it. What was done is
// remembered for longer than the sender's last attempt, and answered with a success at once.

import { randomUUID } from "node:crypto";
import express from "express";
import { createClient } from "redis";
import { Webhook } from "standardwebhooks";
import { handle } from "./handle.mjs";

/** How long a claim belongs to a handler that is not heard of: longer than any handler takes. */
const LEASE_MS = 30_000;
/** How long an event is remembered: the sender's last attempt comes a day after the first. */
const DONE_S = 48 * 3600;

const webhook = new Webhook(process.env.EVERHOOK_SECRET);
const redis = createClient({ url: process.env.REDIS_URL });
redis.on("error", (error) => console.error("redis:", error.message));
await redis.connect();

/** Changes the key only while it holds our own claim: who was late must not undo another's. */
const ours = (command) => `
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
  ${command}
  return 1`;
const FINISH = ours(`redis.call('SET', KEYS[1], 'done', 'EX', ${DONE_S})`);
const RELEASE = ours("redis.call('DEL', KEYS[1])");

const app = express();

// The bytes as they came: the signature is over them, not over what a parser makes of them.
app.post("/", express.raw({ type: () => true, limit: "2mb" }), async (request, response) => {
  let event;
  try {
    event = webhook.verify(request.body, request.headers);
  } catch {
    return response.status(401).end();
  }
  const key = `webhook:${request.get("webhook-id")}`;
  const claim = randomUUID();
  const options = { condition: "NX", expiration: { type: "PX", value: LEASE_MS } };
  if ((await redis.set(key, claim, options)) === null) {
    if ((await redis.get(key)) === "done") return response.json({ status: "duplicate" });
    // Another request works on it, and may fail yet. The sender comes back.
    return response.status(409).set("retry-after", "1").json({ status: "in progress" });
  }
  try {
    await handle(event, redis);
  } catch (error) {
    await redis.eval(RELEASE, { keys: [key], arguments: [claim] });
    console.error(event.id, error.message);
    return response.status(500).json({ status: "failed" });
  }
  await redis.eval(FINISH, { keys: [key], arguments: [claim] });
  response.json({ status: "processed" });
});

// Redis is away: nothing was done, or it will be found out by the next attempt.
app.use((error, _request, response, _next) => {
  const status = error.status ?? 503;
  if (status >= 500) console.error(error.message);
  response.status(status).json({ status: "failed" });
});

app.listen(Number(process.env.PORT), "127.0.0.1", () => console.log("listening"));
