/** The answer of an app, which grows while it arrives. */

import { ApiError, messageOf, raise, send } from "../api/client";
import { type ServerEvent, serverEvents } from "../api/sse";
import { type Json, type JsonObject, type ModelRequest, requestBody, withoutDefault } from "./draft";
import { decodeBase64, PcmPlayer } from "./pcm_player";

export interface Answer {
  text: string;
  reasoning: string;
  /** Images as `data:` URLs; previews until the image is complete. */
  images: string[];
  step: { step: number; steps: number } | null;
  /** Values of a native invocation. */
  values: Json[];
  speechSeconds: number;
  /** The address of the complete speech. */
  speech: string;
  usage: JsonObject | null;
  firstSeconds: number | null;
  seconds: number | null;
  requestId: string;
  error: string;
}

const EMPTY: Answer = {
  text: "",
  reasoning: "",
  images: [],
  step: null,
  values: [],
  speechSeconds: 0,
  speech: "",
  usage: null,
  firstSeconds: null,
  seconds: null,
  requestId: "",
  error: "",
};

const CHAT_SAMPLE_RATE = 24_000;

type OnChange = (answer: Answer, request: ModelRequest) => void;

/** Sends a request, and calls `onChange` with the answer after each part and with the request that was sent.
 *
 * If the app refuses a field that the user has not chosen, the request is sent again without this field. */
export async function ask(request: ModelRequest, signal: AbortSignal, onChange: OnChange): Promise<void> {
  let next: ModelRequest | null = request;
  while (next !== null) next = await askOnce(next, signal, onChange);
}

/** Returns the request to send in place of a refused one, or null. */
async function askOnce(request: ModelRequest, signal: AbortSignal, onChange: OnChange): Promise<ModelRequest | null> {
  const start = performance.now();
  const elapsed = () => (performance.now() - start) / 1000;
  let answer: Answer = EMPTY;
  const speech = new Speech(request.mode !== "speech" || request.body.response_format === "pcm");
  function update(change: Partial<Answer>) {
    answer = { ...answer, ...change };
    onChange(answer, request);
  }
  update({});
  try {
    const headers = { accept: "text/event-stream, application/json" };
    const response = await send("POST", request.path, requestBody(request), { signal, headers });
    update({ requestId: response.headers.get("x-request-id") ?? "" });
    if (response.headers.get("content-type")?.startsWith("text/event-stream")) {
      for await (const event of serverEvents(response)) {
        const change = apply(answer, request, event, speech);
        update({ firstSeconds: answer.firstSeconds ?? elapsed(), ...change });
      }
    } else {
      update({ values: [(await response.json()) as Json], firstSeconds: elapsed() });
    }
  } catch (problem) {
    const reduced = withoutUnused(request, problem);
    if (reduced !== null) return reduced;
    update({ error: signal.aborted ? "Stopped." : messageOf(problem) });
  }
  speech.end(signal.aborted);
  update({ seconds: elapsed(), step: null, speech: speech.address() });
  return null;
}

function withoutUnused(request: ModelRequest, problem: unknown): ModelRequest | null {
  if (!(problem instanceof ApiError) || problem.code !== "unused_field" || problem.param === null) return null;
  return withoutDefault(request, problem.param);
}

/** Returns the changes of an answer by an event. Raises an error for an event of an error. */
function apply(answer: Answer, request: ModelRequest, event: ServerEvent, speech: Speech): Partial<Answer> {
  if (event.data === "" || event.data === "[DONE]") return {};
  const document = JSON.parse(event.data);
  if (event.name === "error" || document?.error) {
    const { message, code, param } = document.error ?? {};
    raise(new ApiError(200, code ?? null, message ?? event.data, param ?? null));
  }
  switch (request.mode) {
    case "chat":
      return chatChange(answer, document, speech);
    case "image":
    case "edit":
      return imageChange(answer, document);
    case "speech":
      if (document.type === "speech.audio.delta") speech.play(document.audio, document.sample_rate);
      return { speechSeconds: speech.seconds, usage: document.usage ?? answer.usage };
    case "transcription":
      if (document.type === "transcript.text.delta") return { text: answer.text + document.delta };
      return document.type === "transcript.text.done" ? { text: document.text, usage: document.usage ?? null } : {};
    case "invoke":
      return { values: [...answer.values, event.name === "item" ? document.item : document] };
  }
}

interface ChatChunk {
  choices: {
    delta: {
      content?: string | null;
      reasoning_content?: string | null;
      images?: { image_url: { url: string } }[];
      audio?: { data?: string; transcript?: string };
    };
  }[];
  usage?: JsonObject | null;
}

function chatChange(answer: Answer, chunk: ChatChunk, speech: Speech): Partial<Answer> {
  const change: Partial<Answer> = chunk.usage ? { usage: chunk.usage } : {};
  const delta = chunk.choices[0]?.delta;
  if (delta === undefined) return change;
  if (delta.audio?.data) speech.play(delta.audio.data, CHAT_SAMPLE_RATE);
  return {
    ...change,
    text: answer.text + (delta.content ?? "") + (delta.audio?.transcript ?? ""),
    reasoning: answer.reasoning + (delta.reasoning_content ?? ""),
    images: [...answer.images, ...(delta.images ?? []).map((image) => image.image_url.url)],
    speechSeconds: speech.seconds,
  };
}

interface ImageEvent {
  type: string;
  image?: number;
  b64_json?: string;
  step?: number;
  steps?: number;
  usage?: JsonObject;
}

function imageChange(answer: Answer, event: ImageEvent): Partial<Answer> {
  if (event.type.endsWith(".progress")) return { step: { step: event.step ?? 0, steps: event.steps ?? 0 } };
  const images = [...answer.images];
  images[event.image ?? 0] = `data:image/png;base64,${event.b64_json}`;
  return { images, usage: event.usage ?? answer.usage };
}

/** The speech of an answer. Samples are played as they arrive; the parts of an audio file are kept until its end. */
class Speech {
  private player: PcmPlayer | null = null;
  private readonly file: BlobPart[] = [];

  constructor(private readonly isPcm: boolean) {}

  get seconds(): number {
    return this.player?.seconds ?? 0;
  }

  /** Adds the next part, in base64. */
  play(part: string, sampleRate: number): void {
    if (this.isPcm) {
      this.player ??= new PcmPlayer(sampleRate);
      this.player.play(part);
    } else {
      this.file.push(decodeBase64(part));
    }
  }

  end(isAborted: boolean): void {
    this.player?.closeAfter(isAborted ? 0 : this.player.remainingSeconds);
  }

  /** Returns the address of all that was received, or an empty text. */
  address(): string {
    if (this.player !== null) return URL.createObjectURL(this.player.wav());
    return this.file.length === 0 ? "" : URL.createObjectURL(new Blob(this.file));
  }
}
