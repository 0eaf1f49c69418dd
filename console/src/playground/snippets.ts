/** The request that the playground has sent, as a command of curl and as Python. */

import { FORM_FILES, type Json, type JsonObject, type ModelRequest } from "./draft";

const KEY = "CORNSERVE_API_KEY";

/** Longer documents are read from the standard input: Linux limits an argument to 128 KiB. */
const MAX_ARGUMENT = 30_000;

/** Returns the address of the gateway, without `console/`. */
export function gatewayAddress(): string {
  return new URL("..", location.href.split("#")[0]).href.replace(/\/$/, "");
}

/** Returns a command for a shell. It reads files from the working directory. */
export function curlCommand(request: ModelRequest, base: string): string {
  const lines = [`curl -N ${quoted(`${base}/${request.path}`)}`, `-H "authorization: Bearer $${KEY}"`];
  if (request.mode === "invoke") lines.push("-H 'accept: text/event-stream'");
  const fileField = FORM_FILES[request.mode];
  if (fileField !== undefined) {
    for (const [name, value] of Object.entries(request.body)) lines.push(`--form-string ${quoted(`${name}=${value}`)}`);
    for (const { name } of request.files) {
      lines.push(`-F ${quoted(`${fileField}=@"${name.replace(/["\\]/g, "\\$&")}"`)}`);
    }
    return joined(lines);
  }
  lines.push("-H 'content-type: application/json'");
  const indices = new Map(request.files.map(({ url }, index) => [url, index]));
  const json = request.text ?? JSON.stringify(request.body, (_key, value) => placeholder(value, indices), 2);
  if (indices.size === 0 && json.length <= MAX_ARGUMENT) return joined([...lines, `-d ${quoted(json)}`]);
  const document = json.replace(PLACEHOLDER_OR_SPECIAL, (special, index) => {
    const file = request.files[index];
    return file === undefined ? `\\${special}` : `$(base64 -w0 ${quoted(file.name)})`;
  });
  return `${joined([...lines, "-d @- <<EOF"])}\n${document}\nEOF`;
}

/** A placeholder of a file in JSON, or a character that the shell expands in a document. */
const PLACEHOLDER_OR_SPECIAL = /\\u0000(\d+)\\u0000|[\\$`]/g;

/** Returns a value of JSON, with a placeholder for the content of a file. */
function placeholder(value: Json, indices: Map<Json, number>): Json {
  const index = indices.get(value);
  return index === undefined ? value : `${startOf(value as string)}\0${index}\0`;
}

/** Returns a `data:` URL without its content. */
function startOf(url: string): string {
  return url.slice(0, url.indexOf(",") + 1);
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function joined(lines: string[]): string {
  return lines.join(" \\\n  ");
}

interface Call {
  method: string;
  /** The fields that OpenAI's client knows. */
  known: string[];
  /** The lines after the call, which print the response. */
  print: string[];
}

const PRINT_EVENTS = ["for event in response:", "    print(event.type)"];
const IMAGE_FIELDS = ["model", "prompt", "size", "n", "stream", "partial_images"];
const CALLS: Record<string, Call> = {
  chat: {
    method: "chat.completions.create",
    known: [
      "model",
      "messages",
      "stream",
      "stream_options",
      "temperature",
      "max_tokens",
      "seed",
      "modalities",
      "audio",
    ],
    print: [
      "for chunk in response:",
      "    for choice in chunk.choices:",
      '        print(choice.delta.content or "", end="")',
    ],
  },
  image: { method: "images.generate", known: IMAGE_FIELDS, print: PRINT_EVENTS },
  edit: { method: "images.edit", known: IMAGE_FIELDS, print: PRINT_EVENTS },
  speech: {
    method: "audio.speech.create",
    known: ["model", "input", "voice", "speed", "response_format", "stream_format"],
    print: ["print(response.text)"],
  },
  transcription: { method: "audio.transcriptions.create", known: ["model", "stream"], print: PRINT_EVENTS },
};

/** Returns a program that uses OpenAI's client, or Cornserve's for a native invocation. */
export function pythonProgram(request: ModelRequest, base: string): string {
  const call = CALLS[request.mode];
  if (call === undefined) {
    const name = decodeURIComponent(request.path.split("/")[2] ?? "");
    const isRounded = request.text !== null && hasRounded(request.body);
    const body = isRounded ? `json.loads(${literal(request.text)})` : literal(request.body, 4);
    return [
      ...(isRounded ? ["import json", ""] : []),
      "from cornserve import Client",
      "",
      `with Client(${literal(base)}) as client:`,
      `    print(client.invoke(${literal(name)}, ${body}))`,
    ].join("\n");
  }
  const fields = Object.entries(request.body);
  const extra: JsonObject = Object.fromEntries(fields.filter(([name]) => !call.known.includes(name)));
  const fileField = FORM_FILES[request.mode];
  const embedded = fileField === undefined && request.files.length > 0;
  const names = new Map(embedded ? request.files.map(({ url, name }) => [url, name]) : []);
  const call_arguments = fields
    .filter(([name]) => call.known.includes(name))
    .map(([name, value]) => `${name}=${literal(value, 4, names)}`);
  if (request.mode === "speech" && !("voice" in request.body)) call_arguments.push('voice="default"');
  for (const file of fileField === undefined ? [] : request.files) {
    call_arguments.push(`${fileField}=open(${literal(file.name)}, "rb")`);
  }
  if (Object.keys(extra).length > 0) call_arguments.push(`extra_body=${literal(extra, 4)}`);
  return [
    "import os",
    ...(embedded ? ["from base64 import b64encode", "from pathlib import Path"] : []),
    "",
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${literal(`${base}/v1`)}, api_key=os.environ.get("${KEY}", "none"))`,
    `response = client.${call.method}(`,
    ...call_arguments.map((argument) => `    ${argument},`),
    ")",
    ...call.print,
  ].join("\n");
}

/** Returns whether a document has a number that JavaScript may have rounded. */
function hasRounded(value: Json): boolean {
  if (typeof value === "number") return Math.abs(value) > Number.MAX_SAFE_INTEGER;
  return typeof value === "object" && value !== null && Object.values(value).some(hasRounded);
}

/** Returns a JSON value as Python. `names` has the files whose content is read, by their `data:` URLs. */
function literal(value: Json, indent = 0, names: Map<Json, string> = new Map()): string {
  const inner = " ".repeat(indent + 4);
  const end = " ".repeat(indent);
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) {
    if (value.length === 0) return "[]";
    return `[\n${value.map((item) => `${inner}${literal(item, indent + 4, names)},\n`).join("")}${end}]`;
  }
  if (typeof value === "object") {
    const items = Object.entries(value);
    if (items.length === 0) return "{}";
    const lines = items.map(([key, item]) => `${inner}${literal(key)}: ${literal(item, indent + 4, names)},\n`);
    return `{\n${lines.join("")}${end}}`;
  }
  const name = names.get(value);
  if (name === undefined) return JSON.stringify(value);
  return `${JSON.stringify(startOf(value as string))} + b64encode(Path(${JSON.stringify(name)}).read_bytes()).decode()`;
}
