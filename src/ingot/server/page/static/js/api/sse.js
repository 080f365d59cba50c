// Server-sent events: the bytes of a response come in, the data of each event goes out.

/** The data of every event, as text, in order. */
export async function* eventData(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const events = (pending + value).split(/\r?\n\r?\n/);
      pending = events.pop();
      for (const event of events) {
        const data = dataOf(event);
        if (data !== null) yield data;
      }
    }
  } finally {
    await reader.cancel().catch(() => {}); // the server hears that nobody reads any more
  }
}

function dataOf(event) {
  const lines = event.split(/\r?\n/).filter((line) => line.startsWith("data:"));
  return lines.length ? lines.map((line) => line.slice(5).trimStart()).join("\n") : null;
}
