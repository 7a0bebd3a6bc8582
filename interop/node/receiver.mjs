// Judges Everhook's signatures with the official JavaScript library.
//
// Prints `port N`, then answers: `POST /_secret` adds a secret, `POST /_report` lists what was
// judged so far, anything else is a webhook.

import { createServer } from "node:http";
import { Webhook, WebhookVerificationError } from "standardwebhooks";

const FORGED_SIGNATURE = `v1,${"A".repeat(43)}=`;

const secrets = [];
const judged = [];

function verifies(secret, body, headers) {
  try {
    new Webhook(secret).verify(body, headers);
    return true;
  } catch (error) {
    if (error instanceof WebhookVerificationError) return false;
    throw error;
  }
}

function judge(body, headers) {
  const forgeries = [
    [Buffer.concat([body, Buffer.from(" ")]), headers],
    [body, { ...headers, "webhook-id": `${headers["webhook-id"]}0` }],
    [body, { ...headers, "webhook-timestamp": `${Number(headers["webhook-timestamp"]) + 1}` }],
    [body, { ...headers, "webhook-signature": FORGED_SIGNATURE }],
  ];
  return {
    id: headers["webhook-id"],
    body: body.toString(),
    verified: secrets.map((secret) => verifies(secret, body, headers)),
    forgeries_verified: secrets.flatMap((secret) =>
      forgeries.filter((forgery) => verifies(secret, ...forgery)),
    ).length,
  };
}

const server = createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const body = Buffer.concat(chunks);
    if (request.url === "/_secret") {
      secrets.push(body.toString());
      response.end();
    } else if (request.url === "/_report") {
      const report = Buffer.from(JSON.stringify(judged));
      response.setHeader("content-length", report.length);
      response.end(report);
    } else {
      judged.push(judge(body, request.headers));
      response.end();
    }
  });
});
server.listen(0, "127.0.0.1", () => console.log("port", server.address().port));
