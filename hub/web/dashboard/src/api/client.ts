import createClient from "openapi-fetch";
import { note } from "../lib/journal";
import { t } from "../text/en";
import type { components, paths } from "./types.gen";

export type Schemas = components["schemas"];

/** HubError is an answer of the hub that is no success, or that none came. */
export class HubError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly instance?: string,
  ) {
    super(detail);
  }
}

type Listener = () => void;
const signedOut = new Set<Listener>();

/** onSignedOut calls back when the hub no longer knows this browser. */
export function onSignedOut(f: Listener): () => void {
  signedOut.add(f);
  return () => signedOut.delete(f);
}

/** problem reads what an answer that is no success says of itself. */
export async function problem(r: Response): Promise<HubError> {
  let body: Partial<Schemas["Problem"]> = {};
  try {
    body = (await r.clone().json()) as Partial<Schemas["Problem"]>;
  } catch {
    // A proxy's page, or nothing: the status has to do.
  }
  return new HubError(r.status, body.code ?? `http_${r.status}`, body.detail ?? body.title ?? t.errors.status(r.status), body.instance);
}

/** request is fetch with what the page does at every answer. */
export async function request(input: Request | string, init?: RequestInit): Promise<Response> {
  let r: Response;
  const what = typeof input === "string" ? input : input.url;
  try {
    r = await fetch(input, { credentials: "same-origin", ...init });
  } catch (e) {
    if (e instanceof DOMException && e.name === "AbortError") throw e;
    throw new HubError(0, "unreachable", t.errors.unreachable);
  }
  if (r.status === 401 && !new URL(what, location.href).pathname.startsWith("/v1/session")) {
    signedOut.forEach((f) => f());
  }
  return r;
}

export const hub = createClient<paths>({ baseUrl: location.origin, fetch: (r: Request) => request(r) });

/** ask gives the body of an answer, or throws what the hub said instead and keeps it in the journal. */
export async function ask<T>(call: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await call.catch((e: unknown) => {
    if (e instanceof HubError) note(e.message, e.code);
    throw e;
  });
  if (error !== undefined || !response.ok) {
    const p = (error ?? {}) as Partial<Schemas["Problem"]>;
    const e = new HubError(response.status, p.code ?? `http_${response.status}`, p.detail ?? p.title ?? t.errors.status(response.status), p.instance);
    if (e.status !== 401) note(e.message, e.code, e.instance, response.url);
    throw e;
  }
  return data as T;
}

/** once is the header that lets a request be repeated without being done twice. */
export function once(): { "Idempotency-Key": string } {
  const b = crypto.getRandomValues(new Uint8Array(16));
  return { "Idempotency-Key": Array.from(b, (x) => x.toString(16).padStart(2, "0")).join("") };
}
