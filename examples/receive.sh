# Sends a webhook as Stripe would, twice, to a source of a running Everhook, and shows its receipt.
#
#     EVERHOOK_TOKEN=ek_... sh examples/receive.sh
#
# EVERHOOK_SERVER names another server than http://127.0.0.1:8080.
set -eu
server=${EVERHOOK_SERVER:-http://127.0.0.1:8080}

# A source: who sends, and the secret that Stripe shows for its endpoint.
curl -sS "$server/api/v1/sources" -H "Authorization: Bearer $EVERHOOK_TOKEN" \
  -H 'Content-Type: application/json' \
  -d '{"name": "shop", "kind": "stripe", "secrets": ["whsec_example"]}'; echo

# What Stripe does: it signs the time and the body.
body='{"id": "evt_1", "type": "invoice.paid"}'
now=$(date +%s)
mac=$(printf '%s.%s' "$now" "$body" | openssl dgst -sha256 -hmac whsec_example | sed 's/.* //')

# The second time it is a duplicate: counted, answered 200, and not forwarded again.
for _ in 1 2; do
  curl -sS "$server/in/shop" -H "Stripe-Signature: t=$now,v1=$mac" \
    -H 'Content-Type: application/json' --data-binary "$body"; echo
done

curl -sS "$server/api/v1/receipts?source=shop" -H "Authorization: Bearer $EVERHOOK_TOKEN"; echo
