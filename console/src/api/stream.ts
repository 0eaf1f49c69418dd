/** Streams of a document: server-sent events, or the document every two seconds. */

export type StreamMessage = { type: "document"; text: string } | { type: "deleted" } | { type: "ended" };

export type OnMessage = (message: StreamMessage) => void;

const POLL_SECONDS = 2;

/** Reads the events named `name` at an address. The last message is `deleted` or `ended`. Returns a function that
 * closes the stream. */
export function readEvents(url: string, name: string, onMessage: OnMessage): () => void {
  const source = new EventSource(url);
  function end(type: "deleted" | "ended") {
    source.close();
    onMessage({ type });
  }
  source.addEventListener(name, (event) => onMessage({ type: "document", text: event.data }));
  source.addEventListener("deleted", () => end("deleted"));
  source.onerror = () => end("ended");
  return () => source.close();
}

/** Reads the document of the events at an address, now and every two seconds, like `readEvents`. */
export function pollDocument(url: string, onMessage: OnMessage): () => void {
  const abort = new AbortController();
  let timer: ReturnType<typeof setTimeout>;
  async function read() {
    try {
      const response = await fetch(documentPath(url), { signal: abort.signal });
      if (!response.ok) throw new Error(response.statusText);
      onMessage({ type: "document", text: await response.text() });
      if (!abort.signal.aborted) timer = setTimeout(read, POLL_SECONDS * 1000);
    } catch {
      if (!abort.signal.aborted) onMessage({ type: "ended" });
    }
  }
  read();
  return () => {
    abort.abort();
    clearTimeout(timer);
  };
}

/** Returns the address of the document that events at an address repeat. */
export function documentPath(path: string): string {
  return path.replace(/\/events$/, "");
}
