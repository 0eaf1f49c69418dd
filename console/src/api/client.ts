/** Requests to the gateway. All addresses are relative to the page, so that they work behind a path prefix. */

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string | null,
    message: string,
    /** The field of the request that the error is about. */
    readonly param: string | null = null,
  ) {
    super(message);
  }
}

type Listener = () => void;
let onSignedOut: Listener = () => {};

/** Sets the function that runs when the session has ended. */
export function setSignedOutListener(listener: Listener): void {
  onSignedOut = listener;
}

/** Sends a request. The body is a form, the text of a JSON document, or a value that becomes one.
 *
 * Raises `ApiError` for a status other than 2xx. */
export async function send(method: string, path: string, body?: unknown, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (method !== "GET") headers.set("x-cornserve-console", "1");
  if (body !== undefined && !(body instanceof FormData)) headers.set("content-type", "application/json");
  const isReady = body === undefined || body instanceof FormData || typeof body === "string";
  const content = isReady ? (body as BodyInit | undefined) : JSON.stringify(body);
  const response = await fetch(path, { ...init, method, headers, body: content });
  if (response.ok) return response;
  return raise(await readError(response));
}

/** Raises an error of the gateway. If the session has ended, the page shows the sign-in. */
export function raise(error: ApiError): never {
  if (error.code === "not_signed_in") onSignedOut();
  throw error;
}

export async function sendJson<T>(method: string, path: string, body?: unknown, init?: RequestInit): Promise<T> {
  const response = await send(method, path, body, init);
  return (response.status === 204 ? null : await response.json()) as T;
}

export function get<T>(path: string, init?: RequestInit): Promise<T> {
  return sendJson<T>("GET", path, undefined, init);
}

export function appPath(name: string): string {
  return `admin/v1/apps/${encodeURIComponent(name)}`;
}

export function messageOf(error: unknown): string {
  if (error instanceof TypeError) return "The gateway cannot be reached.";
  return error instanceof Error ? error.message : String(error);
}

async function readError(response: Response): Promise<ApiError> {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    return new ApiError(response.status, error.code ?? null, String(error.message), error.param ?? null);
  } catch {
    return new ApiError(response.status, null, text.slice(0, 500) || `The gateway returned status ${response.status}.`);
  }
}
