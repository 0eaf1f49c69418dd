/** Reads the streams of all windows of a browser, each address once.
 *
 * Browsers open six connections to a server by HTTP/1.1, for all windows. Two are for streams; the documents of further
 * addresses are polled, so that a request never waits for a stream to end. */

import { type OnMessage, pollDocument, readEvents, type StreamMessage } from "./stream";

const MAX_STREAMS = 2;

/** What a window sends first. Then, it sends null once it no longer needs the stream. */
export interface Subscription {
  url: string;
  name: string;
}

class SharedStream {
  readonly isPolled: boolean;
  private readonly ports = new Set<MessagePort>();
  private last: StreamMessage | null = null;
  private readonly stop: () => void;

  constructor(private readonly subscription: Subscription) {
    const { url, name } = subscription;
    this.isPolled = [...streams.values()].filter((stream) => !stream.isPolled).length >= MAX_STREAMS;
    const onMessage: OnMessage = (message) => this.send(message);
    this.stop = this.isPolled ? pollDocument(url, onMessage) : readEvents(url, name, onMessage);
    streams.set(url, this);
  }

  add(port: MessagePort): void {
    this.ports.add(port);
    if (this.last !== null) port.postMessage(this.last);
  }

  remove(port: MessagePort): void {
    this.ports.delete(port);
    if (this.ports.size === 0) this.end();
  }

  private send(message: StreamMessage): void {
    this.last = message;
    for (const port of this.ports) port.postMessage(message);
    if (message.type !== "document") this.end();
  }

  private end(): void {
    this.stop();
    if (streams.get(this.subscription.url) === this) streams.delete(this.subscription.url);
  }
}

const streams = new Map<string, SharedStream>();

function onConnect(event: MessageEvent): void {
  const port = event.ports[0] as MessagePort;
  let stream: SharedStream | null = null;
  port.onmessage = ({ data }: MessageEvent<Subscription | null>) => {
    if (data === null) {
      stream?.remove(port);
      port.close();
    } else {
      stream = streams.get(data.url) ?? new SharedStream(data);
      stream.add(port);
    }
  };
}

(globalThis as unknown as { onconnect: typeof onConnect }).onconnect = onConnect;
