import { useCallback, useEffect, useState } from "preact/hooks";
import { get, messageOf } from "./client";

export interface Live<T> {
  value: T | null;
  /** Why the value is missing or old. */
  error: string;
  /** Whether the object has been deleted. */
  deleted: boolean;
}

/** Follows a stream of events named `name`. The stream is closed while the page is hidden. */
export function useEvents<T>(path: string, name: string): Live<T> {
  const [state, setState] = useState<Live<T>>({ value: null, error: "", deleted: false });
  useEffect(() => {
    setState({ value: null, error: "", deleted: false });
    let source: EventSource | null = null;
    let isUsed = true;
    let retry: ReturnType<typeof setTimeout>;
    function close() {
      clearTimeout(retry);
      source?.close();
      source = null;
    }
    function open() {
      close();
      source = new EventSource(path);
      source.addEventListener(name, (event) =>
        setState({ value: JSON.parse(event.data) as T, error: "", deleted: false }),
      );
      source.addEventListener("deleted", () => {
        close();
        setState((last) => ({ ...last, deleted: true }));
      });
      source.onerror = async () => {
        close();
        const error = await reason(path.replace(/\/events$/, ""));
        // Meanwhile, the view may have been left, such as for the sign-in.
        if (!isUsed || document.hidden) return;
        setState((last) => ({ ...last, error }));
        clearTimeout(retry);
        retry = setTimeout(open, 2000);
      };
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
