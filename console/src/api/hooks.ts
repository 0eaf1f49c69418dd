import { useCallback, useEffect, useState } from "preact/hooks";
import { get, messageOf } from "./client";
import { followEvents } from "./shared_stream";
import { documentPath, type StreamMessage } from "./stream";

const RETRY_SECONDS = 2;

export interface Live<T> {
  value: T | null;
  /** Why the value is missing or old. */
  error: string;
  /** Whether the object has been deleted, and not deployed again. */
  deleted: boolean;
}

/** Follows a stream of events named `name`, and opens it again if it ends. It is closed while the page is hidden. */
export function useEvents<T>(path: string, name: string): Live<T> {
  const [state, setState] = useState<Live<T>>({ value: null, error: "", deleted: false });
  useEffect(() => {
    setState({ value: null, error: "", deleted: false });
    let stop = () => {};
    let isUsed = true;
    let retry: ReturnType<typeof setTimeout>;
    function close() {
      clearTimeout(retry);
      stop();
    }
    function open() {
      close();
      stop = followEvents(path, name, onMessage);
    }
    async function onMessage(message: StreamMessage) {
      if (message.type === "document") {
        setState({ value: JSON.parse(message.text) as T, error: "", deleted: false });
        return;
      }
      close();
      const isDeleted = message.type === "deleted";
      const error = isDeleted ? "" : await reason(documentPath(path));
      // Meanwhile, the view may have been left, such as for the sign-in.
      if (!isUsed || document.hidden) return;
      setState((last) => ({ ...last, error, deleted: last.deleted || isDeleted }));
      clearTimeout(retry);
      retry = setTimeout(open, RETRY_SECONDS * 1000);
    }
    function onVisibility() {
      if (document.hidden) close();
      else open();
    }
    onVisibility();
    document.addEventListener("visibilitychange", onVisibility);
    return () => {
      document.removeEventListener("visibilitychange", onVisibility);
      isUsed = false;
      close();
    };
  }, [path, name]);
  return state;
}

/** Returns why a stream has ended: an error of its address, which `EventSource` does not show. */
async function reason(path: string): Promise<string> {
  try {
    await get(path);
    return "The connection to the gateway was lost. Connecting again…";
  } catch (error) {
    return messageOf(error);
  }
}

export interface Polled<T> {
  value: T | null;
  error: string;
  refresh: () => void;
}

/** Reads a document now and every `seconds` while the page is visible. With 0, reads it once. */
export function usePolled<T>(path: string, seconds: number): Polled<T> {
  const [value, setValue] = useState<T | null>(null);
  const [error, setError] = useState("");
  const [count, setCount] = useState(0);
  const refresh = useCallback(() => setCount((last) => last + 1), []);
  // `count` reads the document again.
  useEffect(() => {
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    async function read() {
      if (!document.hidden) {
        try {
          const next = await get<T>(path, { signal: abort.signal });
          setValue(next);
          setError("");
        } catch (problem) {
          if (!abort.signal.aborted) setError(messageOf(problem));
        }
      }
      if (seconds > 0 && !abort.signal.aborted) timer = setTimeout(read, seconds * 1000);
    }
    read();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [path, seconds, count]);
  return { value, error, refresh };
}
