// A worker in JavaScript: takes requests from one queue, answers to another, and knows nothing but the documented JSON.
//
//   npm install amqplib
//   node recogniser.mjs amqp://guest:guest@localhost/ task_exchange task.recogniser task.results
//
// It says what it does on standard error. SIGTERM lets it finish what it has begun.

import amqp from "amqplib";

const PREFETCH = 50; // how many requests are here at once
const DELIVERIES_ALLOWED = 10;
const MINUTES = 3; // of long audio
const [url, exchange, requestQueue, resultRoutingKey] = process.argv.slice(2);
let stopping = false;
let wake = () => {};

// The work itself: replace this by your own. What it throws is a failure that may pass, unless it is marked.
async function recognise({ audio_key }, attempt, report) {
  if (typeof audio_key !== "string") throw permanent("audio_key is missing");
  if (audio_key.startsWith("broken/")) throw permanent("this is no audio");
  if (audio_key.startsWith("flaky/") && attempt === 1) throw new Error("the model is busy");
  for (let minute = 1; audio_key.startsWith("long/") && minute <= MINUTES; minute++) {
    await new Promise((resolve) => setTimeout(resolve, 200));
    report({ minute, of: MINUTES });
  }
  return { text: `words of ${audio_key}`, letters: audio_key.length };
}

function permanent(message) {
  return Object.assign(new Error(message), { permanent: true });
}

async function answerTo(request, deliveries, say) {
  const { task_id, attempt, payload } = request;
  const named = { task_id, attempt }; // the same as in the request
  try {
    if (deliveries >= DELIVERIES_ALLOWED) throw permanent("the recogniser died of it several times");
    const report = (progress) => say({ ...named, status: "progress", progress });
    return { ...named, status: "completed", result: await recognise(payload, attempt, report) };
  } catch (error) {
    return { ...named, status: "failed", error: error.message, retryable: !error.permanent };
  }
}

// The order matters: work, answer, confirm, and only then acknowledge.
async function handle(channel, message, isBroken) {
  let request;
  try {
    request = JSON.parse(message.content);
    if (typeof request.task_id !== "string" || !Number.isInteger(request.attempt)) throw new Error("no request");
  } catch {
    console.error("a message is no request");
    channel.reject(message, false); // without requeue: it goes to the queue of dead letters
    return;
  }
  const say = (answer, done) => {
    const options = { contentType: "application/json", persistent: true, mandatory: true };
    channel.publish(exchange, resultRoutingKey, Buffer.from(JSON.stringify(answer)), options, done);
  };
  const answer = await answerTo(request, message.properties.headers?.["x-delivery-count"] ?? 0, say);
  await new Promise((resolve, reject) => say(answer, (error) => (error ? reject(error) : resolve())));
  if (isBroken()) throw new Error("the answer did not arrive"); // what comes back is confirmed all the same
  channel.ack(message);
}

// Serves one connection until it breaks or it is time to stop. What is not acknowledged by then comes again.
async function serve() {
  const connection = await amqp.connect(url, { heartbeat: 30 });
  const begun = new Set();
  let broken = false;
  const ended = new Promise((resolve) => {
    wake = resolve;
  });
  const breakOff = (reason) => {
    broken = true;
    console.error(String(reason?.message ?? reason));
    wake();
  };
  connection.on("error", breakOff);
  connection.on("close", () => wake());
  const channel = await connection.createConfirmChannel();
  channel.on("error", breakOff);
  channel.on("close", () => wake());
  channel.on("return", () => breakOff(`no queue is bound for answers: ${resultRoutingKey}`));
  await channel.prefetch(PREFETCH);
  const { consumerTag } = await channel.consume(requestQueue, (message) => {
    if (message === null) return breakOff("the queue was deleted");
    if (stopping || broken) return;
    const work = handle(channel, message, () => broken).catch(breakOff);
    begun.add(work);
    work.finally(() => begun.delete(work));
  });
  console.error(`serving ${requestQueue}`);
  if (!stopping) await ended;
  if (stopping && !broken) {
    await channel.cancel(consumerTag);
    await Promise.all(begun);
    await channel.close();
  }
  await connection.close();
}

for (const signal of ["SIGTERM", "SIGINT"]) {
  process.on(signal, () => {
    stopping = true;
    wake();
  });
}
while (!stopping) {
  try {
    await serve();
  } catch (error) {
    console.error(String(error?.message ?? error));
  }
  if (!stopping) await new Promise((resolve) => setTimeout(resolve, 500));
}
console.error("stopped");
