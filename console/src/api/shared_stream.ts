import { type OnMessage, readEvents } from "./stream";
import type { Subscription } from "./stream_worker";

/** Whether the browser has shared workers, and loads this one. */
let isShared = "SharedWorker" in globalThis;

/** Reads the events named `name`, by a connection that all windows of the browser share. The last message is `deleted`
 * or `ended`. Returns a function that closes the stream. */
export function followEvents(path: string, name: string, onMessage: OnMessage): () => void {
  const url = new URL(path, location.href).href;
  if (!isShared) return readEvents(url, name, onMessage);
  const worker = new SharedWorker(new URL("./stream_worker.ts", import.meta.url), { type: "module" });
  const { port } = worker;
  port.onmessage = (event) => onMessage(event.data);
  worker.onerror = () => {
    isShared = false;
    onMessage({ type: "ended" });
  };
  port.postMessage({ url, name } satisfies Subscription);
  return () => {
    port.onmessage = null;
    port.postMessage(null);
  };
}
