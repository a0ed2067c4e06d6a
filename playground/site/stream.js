// Server-sent events over fetch, which can send a token, unlike EventSource.
const first = 500; // milliseconds
const longest = 8000;
const largest = 4 << 20; // characters of one event

// Stream requests events until it is stopped, and reconnects. told gets each event. trouble gets
// the reason of a failure, or an empty text once that is over, whether that ends the stream, as a
// refusal does, and whether it has failed before.
export class Stream {
  constructor(url, { headers = () => ({}), told, trouble }) {
    Object.assign(this, { url, headers, told, trouble });
    this.stopped = new AbortController();
    this.wait = first;
    this.run();
  }

  stop() {
    this.stopped.abort();
  }

  async run() {
    const { signal } = this.stopped;
    while (!signal.aborted) {
      let reason = "";
      try {
        const response = await fetch(this.url, { headers: this.headers(), signal, cache: "no-store" });
        if (response.ok) {
          await this.read(response.body);
          reason = "it has ended the connection";
        } else {
          reason = await refusal(response);
          if (response.status < 500) {
            this.trouble(reason, true);
            return;
          }
        }
      } catch (error) {
        reason = error.message;
      }
      if (signal.aborted) return;
      this.trouble(reason, false, this.wait > first);
      await pause(this.wait, signal);
      this.wait = Math.min(2 * this.wait, longest);
    }
  }

  async read(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      const events = text.split("\n\n");
      text = events.pop();
      if (text.length > largest) throw new Error("an event is too large");
      for (const event of events) {
        const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(event);
        this.told(name, JSON.parse(data));
      }
      this.wait = first;
      this.trouble("", false);
    }
  }
}

// refusal returns the server's reason for a refusal.
export async function refusal(response) {
  const text = (await response.text()).slice(0, 500).trim();
  try {
    return JSON.parse(text).detail ?? text;
  } catch {
    return text || `status ${response.status}`;
  }
}

function pause(milliseconds, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      done();
    });
  });
}
