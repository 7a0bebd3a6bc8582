// Sends an invoice once, however many workers are told to send it.
//
//     EVERHOOK_TOKEN=ek_... node claims.mjs 2026-0042
//
// Needs nothing but Node.js 18 or newer. EVERHOOK_SERVER names another server than
// http://127.0.0.1:8080; WORK_SECONDS is how long the work takes, LEASE_MS how long a worker that
// died is waited for.

import { setTimeout as sleep } from "node:timers/promises";

const SERVER = process.env.EVERHOOK_SERVER ?? "http://127.0.0.1:8080";
const LEASE_MS = Number(process.env.LEASE_MS ?? 10_000);
const WAIT_MS = 20_000;

// The claim is somebody else's by now: stop, and undo what can be undone.
class Lost extends Error {}

// The status and the body of an answer of the claim API.
async function call(method, path, body) {
  const answer = await fetch(`${SERVER}/api/v1/claims${path}`, {
    method,
    body: body && JSON.stringify(body),
    headers: {
      Authorization: `Bearer ${process.env.EVERHOOK_TOKEN}`,
      "Content-Type": "application/json",
    },
    signal: AbortSignal.timeout(WAIT_MS + 10_000),
  });
  return [answer.status, await answer.json()];
}

// Says something about a claim that we hold.
async function own(claim, verb, more = {}) {
  const body = { token: claim.token, ...more };
  const [status, answer] = await call("POST", `/${claim.id}/${verb}`, body);
  if (status === 404 || status === 409) throw new Lost(answer.detail);
  if (status !== 200) throw new Error(JSON.stringify(answer));
  return answer;
}

// Renews the lease at every third of it, until it is told to stop.
async function keep(claim, signal) {
  while (!signal.aborted) {
    await sleep(LEASE_MS / 3, undefined, { signal }).catch(() => {});
    if (signal.aborted) return;
    try {
      await own(claim, "renew", { lease_ms: LEASE_MS });
    } catch (error) {
      if (error instanceof Lost) return;
      // The next try may still be in time; if not, `complete` will tell.
      console.error("not renewed:", error);
    }
  }
}

// The result of the work for this key: done now, or before, by us or by somebody else.
async function once(scope, key, work) {
  for (;;) {
    const wanted = { scope, key, lease_ms: LEASE_MS, ttl_s: 86_400 };
    const [status, claim] = await call("POST", "", wanted);
    if (status !== 200) throw new Error(JSON.stringify(claim));
    if (claim.outcome === "completed") {
      console.log("done before", JSON.stringify(claim.result));
      return claim.result;
    }
    if (claim.outcome === "in_progress") {
      console.log("waiting");
      // Answered as soon as it ends, however that is; then the key is claimed again.
      await call("GET", `/${claim.id}?wait_ms=${WAIT_MS}`);
      continue;
    }
    // `reclaimed`: a worker began and was not heard of again. What it did may be done already, so
    // the work must look first, or be harmless twice.
    console.log("working", claim.outcome);
    const done = new AbortController();
    const keeper = keep(claim, done.signal);
    let result;
    try {
      result = await work(key);
    } catch (error) {
      // Only because it is known that nothing was sent.
      await own(claim, "release");
      throw error;
    } finally {
      done.abort();
      await keeper;
    }
    await own(claim, "complete", { result });
    console.log("done", JSON.stringify(result));
    return result;
  }
}

// Where the invoice would be sent.
async function sendInvoice(number) {
  await sleep(Number(process.env.WORK_SECONDS ?? 0) * 1000);
  return { sent: number };
}

await once("invoices", process.argv[2], sendInvoice);
