import { problem, request } from "../api/client";
import { store } from "./store";

/** Session is who is signed in, as the hub says. */
export interface Session {
  name: string;
  role: "viewer" | "operator" | "admin";
  expires_at: string;
}

/** session is undefined until it is known, null for nobody. */
export const session = store<Session | null | undefined>(undefined);

const rank = { viewer: 1, operator: 2, admin: 3 };

/** may says whether who is signed in has at least a role. */
export function may(s: Session | null | undefined, role: Session["role"]): boolean {
  return Boolean(s) && rank[s!.role] >= rank[role];
}

export async function look(): Promise<void> {
  const r = await request("/v1/session");
  if (r.status === 401 || r.status === 404) {
    session.set(null);
    return;
  }
  if (!r.ok) throw await problem(r);
  session.set((await r.json()) as Session);
}

export async function signIn(token: string): Promise<void> {
  const r = await request("/v1/session", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token }) });
  if (!r.ok) throw await problem(r);
  session.set((await r.json()) as Session);
}

export async function signOut(): Promise<void> {
  const r = await request("/v1/session", { method: "DELETE" });
  if (!r.ok && r.status !== 401) throw await problem(r);
  session.set(null);
}

// What WebAuthn takes and gives as JSON; the hub names a ceremony, which ends it.
type Ceremony = { ceremony: string; options: unknown };
interface JSONCredentials {
  parseCreationOptionsFromJSON(o: unknown): PublicKeyCredentialCreationOptions;
  parseRequestOptionsFromJSON(o: unknown): PublicKeyCredentialRequestOptions;
}

async function post(path: string, body?: unknown): Promise<unknown> {
  const r = await request(`/v1/session/passkeys/${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body ?? {}),
  });
  if (!r.ok) throw await problem(r);
  return r.json();
}

function credentials(): JSONCredentials | undefined {
  const c = (globalThis as { PublicKeyCredential?: JSONCredentials }).PublicKeyCredential;
  return typeof c?.parseRequestOptionsFromJSON === "function" ? c : undefined;
}

/** Ways are those in which the hub lets people sign in here. */
export interface Ways {
  offered: boolean;
  why_not?: string;
}

/** ways says whether passkeys can be used, and why not: the hub's reason, or that this browser has none. */
export async function ways(noBrowser: string): Promise<Ways> {
  const r = await request("/v1/session/ways");
  if (!r.ok) throw await problem(r);
  const w = ((await r.json()) as { passkeys: Ways }).passkeys;
  return w.offered && !credentials() ? { offered: false, why_not: noBrowser } : w;
}

export async function signInWithPasskey(): Promise<void> {
  const o = (await post("login/begin")) as Ceremony;
  const got = (await navigator.credentials.get({ publicKey: credentials()!.parseRequestOptionsFromJSON(o.options) })) as PublicKeyCredential | null;
  if (got) session.set((await post("login/finish", { ceremony: o.ceremony, response: got.toJSON() })) as Session);
}

export async function addPasskey(name: string): Promise<void> {
  const o = (await post("register/begin")) as Ceremony;
  const made = (await navigator.credentials.create({ publicKey: credentials()!.parseCreationOptionsFromJSON(o.options) })) as PublicKeyCredential | null;
  if (made) await post("register/finish", { ceremony: o.ceremony, name, response: made.toJSON() });
}
