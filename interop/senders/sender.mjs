// Signs requests with the providers' own packages and sends them to the sources in the variable
// SOURCES: {"stripe": {"url": "http://…", "secret": "…", "public_url": "https://…"}, …}.
//
// Prints one JSON line a request: what was sent, and what was answered.

import { createSHA256HMAC } from "@shopify/shopify-api/runtime";
import { sign as signForGithub } from "@octokit/webhooks-methods";
import Stripe from "stripe";
import twilio from "twilio";

const TEXT = 'é 😀 \\u001B \\\\u0041 "quoted"\r\n\u2028';

const stripe = {
  bodies: [
    JSON.stringify({ id: "evt_interop_1", object: "event", type: "invoice.paid", data: TEXT }),
    `{ "id" : "evt_interop_2" ,\n "type":"charge.failed", "amount": 1.00, "u": "\\u001B" }`,
  ],
  sign: (body, { secret }) => ({
    "content-type": "application/json; charset=utf-8",
    "stripe-signature": Stripe.webhooks.generateTestHeaderString({ payload: body, secret }),
  }),
};

const shopify = {
  bodies: [JSON.stringify({ id: 820982911946154500, note: TEXT }), "{}"],
  sign: async (body, { secret }, index) => ({
    "content-type": "application/json",
    "x-shopify-topic": "orders/create",
    "x-shopify-shop-domain": "interop.example.test",
    "x-shopify-webhook-id": `b54557e4-bdd9-4b37-8a5f-bf7d70bcd04${index}`,
    "x-shopify-hmac-sha256": await createSHA256HMAC(secret, body),
  }),
};

const github = {
  bodies: [
    JSON.stringify({ action: "opened", issue: { title: TEXT } }),
    `payload=${encodeURIComponent(JSON.stringify({ zen: TEXT }))}`,
  ],
  sign: async (body, { secret }, index) => ({
    "content-type": index === 0 ? "application/json" : "application/x-www-form-urlencoded",
    "x-github-event": index === 0 ? "issues" : "ping",
    "x-github-delivery": `72d3162e-cc78-11e3-81ab-4c9367dc095${index}`,
    "x-hub-signature-256": await signForGithub(secret, body),
  }),
};

const twilioForms = [
  { CallSid: "CA1", CallStatus: "completed", SequenceNumber: "3", Caller: "+14158675309" },
  { MessageSid: "SM1", MessageStatus: "sent", Body: `a+b & c = ${TEXT}` },
];
const calls = {
  bodies: twilioForms.map((form) => new URLSearchParams(form).toString()),
  sign: (_, { secret, public_url }, index) => ({
    "content-type": "application/x-www-form-urlencoded",
    "x-twilio-signature": twilio.getExpectedTwilioSignature(
      secret,
      public_url,
      twilioForms[index],
    ),
  }),
};

const providers = { stripe, shopify, github, twilio: calls };

async function send(url, body, headers) {
  const response = await fetch(url, { method: "POST", headers, body });
  return { status: response.status, answer: await response.text() };
}

/** The same with its last character changed. */
function altered(body) {
  return body.slice(0, -1) + (body.endsWith("}") ? "]" : "}");
}

const sources = JSON.parse(process.env.SOURCES);
for (const [kind, source] of Object.entries(sources)) {
  const { bodies, sign } = providers[kind];
  for (const [index, body] of bodies.entries()) {
    const headers = await sign(body, source, index);
    const foreign = await sign(body, { ...source, secret: `${source.secret}x` }, index);
    for (const [name, sent, signed] of [
      ["altered", altered(body), headers],
      ["foreign", body, foreign],
      ["genuine", body, headers],
      ["repeated", body, headers],
    ]) {
      const answered = await send(source.url, sent, signed);
      console.log(JSON.stringify({ kind, index, case: name, ...answered }));
    }
  }
}
