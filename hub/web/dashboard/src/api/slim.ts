import type { Schemas } from "./client";

/** Row is what lists show of a job: fifty thousand whole records would fill the browser. */
export interface Row {
  id: string;
  state: string;
  kind: string;
  harness: string;
  model: string;
  title: string;
  detail: string;
  since: string;
  created: string;
  started: string | null;
  finished: string | null;
  runner: string;
  runnerId: string;
  repo: string;
  origin: string;
  turn: number;
  cancelling: boolean;
  revision: number;
}

const longest = 160; // characters of a title

/** title is the one line by which people know a job. */
export function title(j: Schemas["Job"]): string {
  const line = j.title || (j.evidence as Schemas["Evidence"] | null)?.commits?.at(-1)?.subject || "";
  return line.length > longest ? `${line.slice(0, longest)}…` : line;
}

/** cancelling says whether a job was told to end and has not yet. */
export function cancelling(j: { state: string; cancel_requested_at?: string }): boolean {
  return Boolean(j.cancel_requested_at) && !ended(j.state);
}

const endedStates = new Set(["succeeded", "failed", "cancelled", "needs_review", "blocked", "lost"]);

export function ended(state: string): boolean {
  return endedStates.has(state);
}

export function slim(j: Schemas["Job"]): Row {
  return {
    id: j.id,
    state: j.state,
    kind: j.kind,
    harness: j.harness,
    model: j.reported_model || j.effective.model || j.model,
    title: title(j),
    detail: j.why ?? j.reason.detail ?? "",
    since: j.reason.since,
    created: j.created_at,
    started: j.started_at,
    finished: j.finished_at,
    runner: j.runner,
    runnerId: j.runner_id,
    repo: repoName(j.repo),
    origin: j.spec.origin.name ?? j.actor_name ?? "",
    turn: j.turn,
    cancelling: cancelling(j),
    revision: j.revision,
  };
}

/** matches says whether a job has every word of a search somewhere. */
export function matches(j: Row, search: string): boolean {
  const text = `${j.id} ${j.title} ${j.repo} ${j.runner} ${j.harness} ${j.model} ${j.origin} ${j.detail}`.toLowerCase();
  return search.toLowerCase().split(/\s+/).every((w) => text.includes(w));
}

/** repoName is how people call a repository: one that was sent as a bundle has no name but its digest. */
export function repoName(repo: string): string {
  const bundle = /^bundle:([0-9a-f]{8})/.exec(repo);
  return bundle ? `bundle ${bundle[1]}` : repo.replace(/^https?:\/\//, "").replace(/\.git$/, "");
}
