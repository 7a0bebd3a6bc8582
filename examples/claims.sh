# Claims a key, keeps it while the work goes on, and completes it: whoever comes later gets the
# result.
#
#     EVERHOOK_TOKEN=ek_... sh examples/claims.sh
#
# EVERHOOK_SERVER names another server than http://127.0.0.1:8080.
set -eu
server=${EVERHOOK_SERVER:-http://127.0.0.1:8080}

call() {
  curl -sS "$server/api/v1/claims$1" -H "Authorization: Bearer $EVERHOOK_TOKEN" \
    -H 'Content-Type: application/json' --data-binary "$2"; echo
}

# The first one gets a token. The key is its own for 10 seconds, and the result is kept for a day.
claim='{"scope": "invoices", "key": "2026-0042", "lease_ms": 10000, "ttl_s": 86400}'
claimed=$(call '' "$claim")
echo "$claimed"
id=$(echo "$claimed" | sed 's/.*"id":"\([^"]*\)".*/\1/')
token=$(echo "$claimed" | sed 's/.*"token":"\([^"]*\)".*/\1/')

# Any other one is told that it is in progress, and until when.
call '' "$claim"

# Work that takes longer renews the lease, well before its end.
call "/$id/renew" "{\"token\": \"$token\", \"lease_ms\": 10000}"

# What came of it. From now on every claim of the key is answered with it.
call "/$id/complete" "{\"token\": \"$token\", \"result\": {\"sent\": true}}"
call '' "$claim"
