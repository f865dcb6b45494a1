import type { Schemas } from "../api/client";
import { pairs, size, words } from "./words";

/** Draft is a job as it is being written, every field as text. */
export interface Draft {
  kind: "agent" | "exec";
  prompt: string;
  command: string;
  shell: boolean;
  repo: string;
  ref: string;
  harness: string;
  model: string;
  on: string;
  permissions: string;
  os: string;
  arch: string;
  docker: boolean;
  disk: string;
  memory: string;
  labels: string;
  env: string;
  timeout: string;
  push: string;
  priority: string;
}

export const blank: Draft = {
  kind: "agent",
  prompt: "",
  command: "",
  shell: false,
  repo: "",
  ref: "",
  harness: "",
  model: "",
  on: "",
  permissions: "workspace",
  os: "",
  arch: "",
  docker: false,
  disk: "",
  memory: "",
  labels: "",
  env: "",
  timeout: "",
  push: "",
  priority: "",
};

export type Wrong = Partial<Record<keyof Draft, "quote" | "empty" | "size" | "pair" | "number">>;

/** submission makes of a draft what the hub is asked for, and says which fields it can't read. */
export function submission(d: Draft): { body: Schemas["Submit"]; wrong: Wrong } {
  const wrong: Wrong = {};
  const body: Schemas["Submit"] = { kind: d.kind };
  if (d.kind === "agent") {
    body.prompt = d.prompt;
    if (!d.prompt.trim()) wrong.prompt = "empty";
    if (d.harness) body.harness = d.harness;
    if (d.model.trim()) body.model = d.model.trim();
    body.permissions = d.permissions as Schemas["Submit"]["permissions"];
  } else {
    const argv = d.shell ? (d.command.trim() ? ["sh", "-c", d.command] : []) : words(d.command);
    if (!argv) wrong.command = "quote";
    else if (argv.length === 0) wrong.command = "empty";
    body.argv = argv ?? [];
  }
  if (d.repo.trim()) body.repo = { url: d.repo.trim(), ...(d.ref.trim() ? { ref: d.ref.trim() } : {}) };
  if (d.push.trim()) body.push = d.push.trim();
  if (d.on) body.on = d.on;
  if (d.timeout.trim()) body.timeout = d.timeout.trim();
  if (d.priority.trim()) {
    const n = Number(d.priority);
    if (Number.isInteger(n) && Math.abs(n) <= 10) body.priority = n;
    else wrong.priority = "number";
  }
  const needs: Schemas["Needs"] = {};
  if (d.os) needs.os = d.os;
  if (d.arch) needs.arch = d.arch;
  if (d.docker) needs.docker = true;
  for (const k of ["disk", "memory"] as const) {
    if (!d[k].trim()) continue;
    const n = size(d[k]);
    if (Number.isNaN(n)) wrong[k] = "size";
    else needs[k] = n;
  }
  if (Object.keys(needs).length > 0) body.needs = needs;
  for (const [field, key] of [["labels", "require"], ["env", "env"]] as const) {
    const p = pairs(d[field]);
    if (p.wrong.length > 0) wrong[field] = "pair";
    if (Object.keys(p.map).length > 0) body[key] = p.map;
  }
  return { body, wrong };
}

/** like makes a draft of a job that there was. */
export function like(j: Schemas["Job"], prompt: string): Draft {
  const s = j.spec;
  const shell = s.argv?.length === 3 && s.argv[0] === "sh" && s.argv[1] === "-c";
  return {
    ...blank,
    kind: s.kind === "exec" ? "exec" : "agent",
    prompt,
    command: shell ? s.argv![2]! : (s.argv ?? []).map((w) => (/^[\w@%+=:,./-]+$/.test(w) ? w : `'${w.replaceAll("'", `'\\''`)}'`)).join(" "),
    shell,
    repo: s.repo?.url ?? "",
    ref: s.repo?.ref ?? "",
    harness: s.kind === "exec" ? "" : s.harness,
    model: s.model ?? "",
    on: s.on ?? "",
    permissions: s.permissions,
    os: s.needs?.os ?? "",
    arch: s.needs?.arch ?? "",
    docker: s.needs?.docker ?? false,
    disk: s.needs?.disk ? String(s.needs.disk) : "",
    memory: s.needs?.memory ? String(s.needs.memory) : "",
    labels: Object.entries(s.require ?? {}).map(([k, v]) => `${k}=${v}`).join(" "),
    env: Object.entries(s.env ?? {}).map(([k, v]) => `${k}=${v}`).join(" "),
    push: s.push ?? "",
    priority: s.priority ? String(s.priority) : "",
  };
}

/** eligible are the agents that some runner has and is signed in to, and the models each names. */
export function eligible(runners: Schemas["Runner"][]): Map<string, string[]> {
  const out = new Map<string, Set<string>>();
  for (const r of runners) {
    for (const h of r.harnesses ?? []) {
      if (h.name === "exec" || h.signed_in === "no") continue;
      const models = out.get(h.name) ?? new Set();
      for (const m of h.models ?? []) models.add(m);
      out.set(h.name, models);
    }
  }
  return new Map([...out].sort(([a], [b]) => a.localeCompare(b)).map(([k, v]) => [k, [...v].sort()]));
}
