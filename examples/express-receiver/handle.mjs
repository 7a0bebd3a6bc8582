// What is done about an event. Here it is counted, so that anybody can see how often that was.

/** Works on an event; throws if it could not be done, and the sender tries again. */
export async function handle(event, redis) {
  await redis.hIncrBy("handled", event.id, 1);
}
