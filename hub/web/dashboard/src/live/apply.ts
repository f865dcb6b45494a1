import type { InfiniteData, QueryClient } from "@tanstack/react-query";
import type { Schemas } from "../api/client";
import { ended, matches, slim, type Row } from "../api/slim";
import type { Told } from "./feed";

type Jobs = InfiniteData<{ jobs: Row[]; next?: string }>;
interface Filter {
  state?: string;
  active?: boolean;
  runner?: string;
  harness?: string;
  q?: string;
}

/** fits says whether a job belongs in a list with a filter. */
export function fits(r: Row, f: Filter): boolean {
  return (
    (!f.state || f.state.split(",").includes(r.state)) &&
    (!f.harness || f.harness === r.harness) &&
    (!f.q || matches(r, f.q)) &&
    (!f.active || !ended(r.state)) &&
    (!f.runner || f.runner === r.runnerId || f.runner === r.runner)
  );
}

/** placed gives a list with one job as it is now: changed, new at its head, or gone. */
export function placed(list: Jobs, r: Row, f: Filter): Jobs {
  let found = false;
  let changed = false;
  const pages = list.pages.map((p) => {
    const i = p.jobs.findIndex((x) => x.id === r.id);
    if (i < 0) return p;
    found = true;
    const was = p.jobs[i]!;
    if (was.revision > r.revision) return p;
    changed = true;
    // An event has no turns, which is where an agent's prompt is.
    const now = { ...r, title: r.title || was.title };
    return { ...p, jobs: fits(now, f) ? p.jobs.with(i, now) : p.jobs.toSpliced(i, 1) };
  });
  const head = pages[0];
  if (!found && head && fits(r, f) && (head.jobs.length === 0 || r.id > head.jobs[0]!.id)) {
    pages[0] = { ...head, jobs: [r, ...head.jobs] };
    changed = true;
  }
  return changed ? { ...list, pages } : list;
}

/** removed gives a list without a job. */
export function removed(list: Jobs, id: string): Jobs {
  if (!list.pages.some((p) => p.jobs.some((j) => j.id === id))) return list;
  return { ...list, pages: list.pages.map((p) => ({ ...p, jobs: p.jobs.filter((j) => j.id !== id) })) };
}

type Changes = Schemas["FeedChanges"];
type Presence = Schemas["FeedPresence"];
type Runner = Schemas["Runner"];

const pause = 250; // ms in which changes are gathered, so that a burst is drawn once
const calm = 1500; // ms between two times that something is asked for anew because of changes

/** Which of the page's questions have another answer when a kind of thing changed. */
const asked: Record<string, string[]> = {
  jobs: ["jobs", "job", "explain", "status"],
  runners: ["runners", "runner", "status"],
  circuits: ["circuits", "status"],
  alerts: ["alerts"],
  settings: ["status"],
  releases: ["releases"],
  budgets: ["budgets"],
  members: ["members", "status"],
  tokens: ["tokens"],
  keys: ["keys"],
  orphans: ["orphans"],
  sign_ins: ["sign-ins"],
  epoch: ["status", "orphans", "members"],
};

/** withRunners gives a list of runners with some as they are now, and without those that are gone. */
export function withRunners(list: Runner[], changed: Map<string, Runner | null>): Runner[] {
  const left = new Map(changed);
  const next = list.flatMap((r) => {
    if (!left.has(r.id)) return [r];
    const now = left.get(r.id);
    left.delete(r.id);
    return now ? [now] : [];
  });
  for (const r of left.values()) if (r) next.push(r);
  return next;
}

/** beaten gives runners with the heartbeats that were heard since; the same list where none was. */
export function beaten(list: Runner[], beats: Record<string, number>): Runner[] {
  let changed = false;
  const next = list.map((r) => {
    const at = beats[r.id];
    if (at === undefined) return r;
    changed = true;
    return { ...r, last_heartbeat: new Date(at).toISOString() };
  });
  return changed ? next : list;
}

/**
 * applier puts what the hub tells into the cache. What an event carries whole is put
 * in place; what it only hints at is asked for again, if somebody looks at it.
 */
export function applier(cache: QueryClient, later: (ms: number, f: () => void) => void = (ms, f) => void setTimeout(f, ms)) {
  let stale = new Map<string, readonly unknown[]>();
  let jobs = new Map<string, Schemas["Job"] | null>();
  let runners = new Map<string, Runner | null>();
  let beats: Record<string, number> = {};
  let audit = 0;
  let leader: string | undefined;
  let due = false;
  let asking = false;

  const hint = (...key: string[]) => {
    stale.set(key.join("/"), key);
    if (key[0] === "status") stale.set("overview", ["overview"]);
  };

  const again = () => {
    asking = false;
    const now = stale;
    stale = new Map();
    for (const queryKey of now.values()) void cache.invalidateQueries({ queryKey });
  };
  const flush = () => {
    due = false;
    const [changedJobs, changedRunners, heard] = [jobs, runners, beats];
    jobs = new Map();
    runners = new Map();
    beats = {};
    if (changedJobs.size > 0) {
      for (const [key] of cache.getQueriesData<Jobs>({ queryKey: ["jobs"] })) {
        const f = (key[1] ?? {}) as Filter;
        cache.setQueryData<Jobs>(key, (list) => {
          for (const [id, j] of changedJobs) {
            if (!list) return list;
            list = j ? placed(list, slim(j), f) : removed(list, id);
          }
          return list;
        });
      }
      for (const [id, j] of changedJobs) {
        if (j) {
          cache.setQueryData<Schemas["Job"]>(["job", id], (was) =>
            was && was.revision < j.revision ? { ...j, turns: was.turns, attempts: was.attempts, transitions: was.transitions } : was,
          );
        }
        hint("job", id);
        hint("explain", id);
        hint("artifacts", id);
      }
      hint("status");
    }
    if (changedRunners.size > 0 || Object.keys(heard).length > 0) {
      cache.setQueryData<Runner[]>(["runners"], (list) => list && beaten(withRunners(list, changedRunners), heard));
      for (const [key, r] of cache.getQueriesData<Runner>({ queryKey: ["runner"] })) {
        if (!r) continue;
        const now = changedRunners.get(r.id);
        if (now) cache.setQueryData(key, now);
        else if (heard[r.id] !== undefined) cache.setQueryData(key, beaten([r], heard)[0]);
      }
    }
    if (stale.size > 0 && !asking) {
      asking = true;
      later(calm, again);
    }
  };
  const soon = () => {
    if (due) return;
    due = true;
    later(pause, flush);
  };

  return (told: Told) => {
    if (told.kind === "reset") {
      void cache.invalidateQueries();
      return;
    }
    if (told.kind !== "event") return;
    switch (told.type) {
      case "changes": {
        const c = told.data as Changes;
        for (const j of c.jobs ?? []) jobs.set(j.id, j);
        for (const id of c.jobs_gone ?? []) jobs.set(id, null);
        for (const r of c.runners ?? []) runners.set(r.id, r);
        for (const id of c.runners_gone ?? []) runners.set(id, null);
        if (c.circuits || c.circuits_gone) hint("circuits");
        if (c.alerts) hint("alerts");
        if (c.runners || c.runners_gone || c.circuits || c.circuits_gone) hint("status");
        for (const what of c.stale ?? []) for (const key of asked[what] ?? []) hint(key);
        break;
      }
      case "presence": {
        const p = told.data as Presence;
        for (const r of p.runners ?? []) runners.set(r.id, r);
        beats = { ...beats, ...p.beats };
        if (p.stale) hint("runners");
        if (p.runners) hint("status");
        break;
      }
      case "hello":
      case "tick": {
        const tick = told.data as Schemas["FeedTick"];
        if (audit !== 0 && tick.audit > audit) hint("audit");
        if (leader !== undefined && leader !== tick.leader) {
          hint("members");
          hint("status");
        }
        audit = tick.audit;
        leader = tick.leader;
        break;
      }
      default:
        return;
    }
    soon();
  };
}
