# Posts a message to a conversation of a running Everhook once, however often the answer gets lost.
#
#     EVERHOOK_TOKEN=ek_... sh examples/message.sh
#
# EVERHOOK_SERVER names another server than http://127.0.0.1:8080.
set -eu
server=${EVERHOOK_SERVER:-http://127.0.0.1:8080}

# Tries again when no answer comes: what was asked may have been done, or not.
call() {
  curl -sS --retry 5 --retry-all-errors --retry-delay 1 \
    -H "Authorization: Bearer $EVERHOOK_TOKEN" -H 'Content-Type: application/json' "$@"
}

# The keys say what is meant: ada is told of evt_1. Whoever tries it again, after a restart or from
# another machine, makes the same keys.
user=ada event=evt_1
conversation=$(call "$server/api/v1/conversations" -H "Idempotency-Key: cnv-$user-$event" \
  -d '{"subject": "Your bill"}')
id=$(printf '%s' "$conversation" | sed 's/.*"id":"\([^"]*\)".*/\1/')

# One message and one webhook message.created, however often this line is tried.
call "$server/api/v1/conversations/$id/messages" -H "Idempotency-Key: msg-$user-$event" \
  -d '{"body": "It is ready."}'; echo

call "$server/api/v1/conversations/$id/messages"; echo
