// Receives webhooks: verifies, deduplicates, answers, and only then works. Node 20, no packages.
//
//     PORT=9000 EVERHOOK_SECRET=whsec_... node examples/receiver.mjs
//
// A real service keeps the ids it has seen in its database, for 48 hours, and commits an id
// together with the work it stands for.

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const TOLERANCE_S = 300;
const BODY_BYTES_MAX = 2 * 1024 * 1024;

const key = Buffer.from(process.env.EVERHOOK_SECRET.replace(/^whsec_/, ""), "base64");
const seen = new Set();

/** Whether these bytes were signed with our secret, and lately. */
function verified(headers, body) {
  const id = headers["webhook-id"] ?? "";
  const timestamp = headers["webhook-timestamp"] ?? "";
  const age = Math.abs(Date.now() / 1000 - Number(timestamp));
  if (!/^\d+$/.test(timestamp) || age > TOLERANCE_S) return false;
  const mac = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest("base64");
  const expected = Buffer.from(`v1,${mac}`);
  // Two signatures come while an old secret is still live; one that fits is enough.
  return (headers["webhook-signature"] ?? "").split(" ").some((one) => {
    const given = Buffer.from(one);
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
}

/** The whole body, or undefined where it is too large. */
async function read(request) {
  const chunks = [];
  let length = 0;
  for await (const chunk of request) {
    length += chunk.length;
    if (length > BODY_BYTES_MAX) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function answer(response, status) {
  response.writeHead(status, { "content-length": 0 }).end();
}

const server = createServer(async (request, response) => {
  const body = await read(request);
  if (body === undefined) return answer(response, 413);
  if (!verified(request.headers, body)) return answer(response, 401);
  const id = request.headers["webhook-id"];
  const duplicate = seen.has(id);
  seen.add(id);
  // A duplicate is a success: it was taken the first time.
  answer(response, 200);
  if (duplicate) {
    console.log("duplicate", id);
  } else {
    const event = JSON.parse(body);
    console.log("processed", event.id, event.type);
  }
});
server.listen(Number(process.env.PORT), "127.0.0.1", () => console.log("listening"));
