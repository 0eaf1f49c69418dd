/** What the user has entered in the playground, and the requests that it becomes. */

import type { AppFigures } from "../api/types";

export const MODES = ["chat", "image", "edit", "speech", "transcription", "invoke"] as const;
export type Mode = (typeof MODES)[number];

export const MODE_LABELS: Record<Mode, string> = {
  chat: "Chat",
  image: "Generate images",
  edit: "Edit an image",
  speech: "Speech",
  transcription: "Transcription",
  invoke: "Invoke with JSON",
};

const OPERATIONS: Record<Mode, string[]> = {
  chat: ["chat", "spoken chat"],
  image: ["image generation"],
  edit: ["image editing"],
  speech: ["speech"],
  transcription: ["transcription"],
  invoke: [],
};

export interface MediaFile {
  name: string;
  type: string;
  /** The content as a `data:` URL. */
  url: string;
  file: File;
}

export interface Draft {
  text: string;
  files: MediaFile[];
  system: string;
  temperature: string;
  maxTokens: string;
  seed: string;
  spoken: boolean;
  voice: string;
  speed: string;
  size: string;
  steps: string;
  previews: string;
}

export const EMPTY_DRAFT: Draft = {
  text: "",
  files: [],
  system: "",
  temperature: "",
  maxTokens: "",
  seed: "",
  spoken: false,
  voice: "",
  speed: "",
  size: "",
  steps: "",
  previews: "",
};

/** The previews of an image, unless the user chooses a number. */
export const DEFAULT_PREVIEWS = 3;

export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export interface ModelRequest {
  mode: Mode;
  /** The path below the gateway. */
  path: string;
  body: JsonObject;
  /** The body as the user has written it, or null. JavaScript rounds integers above 2^53 in `body`. */
  text: string | null;
  /** Files of a form, or those whose content `body` has as `data:` URLs, also in earlier messages. */
  files: MediaFile[];
  /** Fields of `body` that the user has not chosen, and that an app may make no use of. */
  defaults: string[];
}

/** Returns whether an app has the operations of a mode. Any mode is possible for an app whose operations are unknown. */
export function supports(app: AppFigures, mode: Mode): boolean {
  if (mode === "invoke" || app.operations === null) return true;
  return OPERATIONS[mode].some((operation) => app.operations?.includes(operation));
}

/** Returns whether an app can speak its response to a chat. */
export function speaks(app: AppFigures): boolean {
  return app.operations?.includes("spoken chat") ?? false;
}

/** Returns the first mode of an app. */
export function modeOf(app: AppFigures): Mode {
  return MODES.find((mode) => supports(app, mode)) ?? "invoke";
}

/** The earlier messages of a chat, and the files whose content they have. */
export interface History {
  messages: Json[];
  files: MediaFile[];
}

/** Returns the mode's request to an app. Raises an error for text that is not JSON, and for a file of another type. */
export function modelRequest(mode: Mode, app: AppFigures, draft: Draft, history: History): ModelRequest {
  const { files } = draft;
  const seed = optional("seed", draft.seed);
  switch (mode) {
    case "chat":
      return {
        mode,
        text: null,
        files: [...new Set([...history.files, ...files])],
        defaults: [],
        path: "v1/chat/completions",
        body: {
          model: app.name,
          messages: [...systemMessage(draft), ...history.messages, userMessage(draft)],
          stream: true,
          stream_options: { include_usage: true },
          ...optional("temperature", draft.temperature),
          ...optional("max_tokens", draft.maxTokens),
          ...seed,
          ...(draft.spoken && speaks(app)
            ? { modalities: ["text", "audio"], audio: { voice: draft.voice, format: "pcm16" } }
            : {}),
        },
      };
    case "image":
    case "edit":
      return {
        mode,
        text: null,
        files: mode === "edit" ? files : [],
        defaults: draft.previews === "" ? ["partial_images"] : [],
        path: mode === "image" ? "v1/images/generations" : "v1/images/edits",
        body: {
          model: app.name,
          prompt: draft.text,
          stream: true,
          progress: true,
          partial_images: draft.previews === "" ? DEFAULT_PREVIEWS : Number(draft.previews),
          ...(draft.size ? { size: draft.size } : {}),
          ...optional("num_inference_steps", draft.steps),
          ...seed,
        },
      };
    case "speech":
      return {
        mode,
        text: null,
        files: [],
        defaults: ["response_format"],
        path: "v1/audio/speech",
        body: {
          model: app.name,
          input: draft.text,
          response_format: "pcm",
          stream_format: "sse",
          ...(draft.voice ? { voice: draft.voice } : {}),
          ...optional("speed", draft.speed),
          ...seed,
        },
      };
    case "transcription":
      return {
        mode,
        text: null,
        files,
        defaults: [],
        path: "v1/audio/transcriptions",
        body: { model: app.name, stream: true },
      };
    case "invoke":
      return {
        mode,
        text: draft.text,
        files: [],
        defaults: [],
        path: `v1/apps/${encodeURIComponent(app.name)}/invoke`,
        body: JSON.parse(draft.text) as JsonObject,
      };
  }
}

/** Returns the request without a field that it has by default. Returns null if the user has chosen the field. */
export function withoutDefault(request: ModelRequest, field: string): ModelRequest | null {
  if (!request.defaults.includes(field)) return null;
  const { [field]: _, ...body } = request.body;
  return { ...request, body, defaults: request.defaults.filter((name) => name !== field) };
}

/** The form fields of files. The other modes send JSON. */
export const FORM_FILES: Partial<Record<Mode, string>> = { edit: "image", transcription: "file" };

/** Returns a form for the operations that take a file, and otherwise an object or the text of one. */
export function requestBody(request: ModelRequest): FormData | JsonObject | string {
  const field = FORM_FILES[request.mode];
  if (field === undefined) return request.text ?? request.body;
  const form = new FormData();
  for (const [name, value] of Object.entries(request.body)) form.append(name, String(value));
  for (const media of request.files) form.append(field, media.file, media.name);
  return form;
}

function optional(name: string, value: string): JsonObject {
  return value === "" ? {} : { [name]: Number(value) };
}

function systemMessage(draft: Draft): Json[] {
  return draft.system === "" ? [] : [{ role: "system", content: draft.system }];
}

function userMessage(draft: Draft): Json {
  if (draft.files.length === 0) return { role: "user", content: draft.text };
  const media = draft.files.map(mediaPart);
  return { role: "user", content: draft.text === "" ? media : [...media, { type: "text", text: draft.text }] };
}

function mediaPart({ name, type, url }: MediaFile): Json {
  const medium = type.split("/")[0] ?? "";
  if (!["image", "audio", "video"].includes(medium)) throw new Error(`${name} is not an image, audio or video.`);
  const kind = `${medium}_url`;
  return { type: kind, [kind]: { url } };
}

/** Reads files as `data:` URLs. Raises an error for an empty file. */
export async function readFiles(files: FileList): Promise<MediaFile[]> {
  const empty = [...files].find((file) => file.size === 0);
  if (empty) throw new Error(`${empty.name} is empty.`);
  return Promise.all(
    [...files].map(async (file) => ({ name: file.name, type: file.type, url: await dataUrl(file), file })),
  );
}

function dataUrl(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
