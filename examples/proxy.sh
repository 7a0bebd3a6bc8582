# Orders twice with one Idempotency-Key, through the proxy in front of examples/shop.py: one order.
#
#     PORT=3000 python3 examples/shop.py &
#     everhook proxy --upstream http://127.0.0.1:3000 &
#     EVERHOOK_TOKEN=ek_... sh examples/proxy.sh
#
# EVERHOOK_PROXY and EVERHOOK_SERVER name others than http://127.0.0.1:8081 and :8080.
set -eu
proxy=${EVERHOOK_PROXY:-http://127.0.0.1:8081}
server=${EVERHOOK_SERVER:-http://127.0.0.1:8080}

# The second answer is the first one again, and says so: Idempotency-Replayed.
for _ in 1 2; do
  curl -sSi "$proxy/orders" -H 'Authorization: Bearer shop-client' \
    -H 'Idempotency-Key: 5fbeb1d1' -d 'item=7'
done

# The same key for something else: 422.
curl -sS "$proxy/orders" -H 'Authorization: Bearer shop-client' \
  -H 'Idempotency-Key: 5fbeb1d1' -d 'item=8'; echo

# Without a key every request goes.
curl -sS "$proxy/orders" -H 'Authorization: Bearer shop-client' -d 'item=7'

# What is remembered, for the operator.
curl -sS "$server/api/v1/idempotency-records?origin=proxy" \
  -H "Authorization: Bearer $EVERHOOK_TOKEN"; echo
