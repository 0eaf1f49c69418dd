/** The request that the playground has sent, as a command of curl and as Python. */

import type { Json, JsonObject, ModelRequest } from "./draft";

const KEY = "CORNSERVE_API_KEY";

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
    for (const [name, value] of Object.entries(request.body)) lines.push(`-F ${quoted(`${name}=${value}`)}`);
    for (const file of request.files) lines.push(`-F ${quoted(`${fileField}=@${file.name}`)}`);
    return joined(lines);
  }
  lines.push("-H 'content-type: application/json'");
  const json = JSON.stringify(request.body, null, 2);
  if (request.files.length === 0) return joined([...lines, `-d ${quoted(json)}`]);
  // Files are too long for an argument.
  let document = json.replace(/[\\$`]/g, "\\$&");
  for (const { name, url } of request.files) {
    document = document.replaceAll(contentOf(url), () => `$(base64 -w0 ${quoted(name)})`);
  }
  return `${joined([...lines, "-d @- <<EOF"])}\n${document}\nEOF`;
}

const FORM_FILES: Record<string, string> = { edit: "image", transcription: "file" };

function contentOf(url: string): string {
  return url.slice(url.indexOf(",") + 1);
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
    return [
      "from cornserve import Client",
      "",
      `with Client(${literal(base)}) as client:`,
      `    print(client.invoke(${literal(name)}, ${literal(request.body, 4)}))`,
    ].join("\n");
  }
  const fields = Object.entries(request.body);
  const extra: JsonObject = Object.fromEntries(fields.filter(([name]) => !call.known.includes(name)));
  const fileField = FORM_FILES[request.mode];
  const embedded = fileField === undefined && request.files.length > 0;
  const call_arguments = fields
    .filter(([name]) => call.known.includes(name))
    .map(([name, value]) => `${name}=${literal(value, 4)}`);
  if (request.mode === "speech" && !("voice" in request.body)) call_arguments.push('voice="default"');
  for (const file of fileField === undefined ? [] : request.files) {
    call_arguments.push(`${fileField}=open(${literal(file.name)}, "rb")`);
  }
  if (Object.keys(extra).length > 0) call_arguments.push(`extra_body=${literal(extra, 4)}`);
  let program = [
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
  for (const { name, url } of embedded ? request.files : []) {
    const read = `" + b64encode(Path(${literal(name)}).read_bytes()).decode() + "`;
    program = program.replaceAll(contentOf(url), () => read);
  }
  return program.replaceAll(' + ""', "");
}

/** Returns a JSON value as Python. */
function literal(value: Json, indent = 0): string {
  const inner = " ".repeat(indent + 4);
  const end = " ".repeat(indent);
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) {
    if (value.length === 0) return "[]";
    return `[\n${value.map((item) => `${inner}${literal(item, indent + 4)},\n`).join("")}${end}]`;
  }
  if (typeof value === "object") {
    const items = Object.entries(value);
    if (items.length === 0) return "{}";
    return `{\n${items.map(([key, item]) => `${inner}${literal(key)}: ${literal(item, indent + 4)},\n`).join("")}${end}}`;
  }
  return JSON.stringify(value);
}
