import type { Schemas } from "../api/client";

type Runner = Schemas["Runner"];

/** standing is the state of a runner as people see it: a hold counts where it is there. */
export function standing(r: Runner): string {
  if (r.state === "online" && r.hold) return r.hold.drain ? "draining" : "cordoned";
  return r.state;
}

/** tight says whether a volume is short of space: the floor is the hub's business, this is for the eye. */
export function tight(v: { free?: number; total?: number; known: boolean }): "ok" | "warn" | "bad" | undefined {
  if (!v.known || !v.total || v.free === undefined) return undefined;
  const share = v.free / v.total;
  return share < 0.05 ? "bad" : share < 0.12 ? "warn" : "ok";
}

const jobId = /\b[0-9a-hjkmnp-tv-z]{26}\b/;

/** alertTarget is the page where more is told of what an alert is about. */
export function alertTarget(a: Schemas["Alert"]): string {
  const job = jobId.exec(a.text)?.[0];
  return a.runner ? `/runners/${a.runner}` : job ? `/jobs/${job}/placement` : "/cluster";
}

/** withoutIds makes a text of the hub fit a narrow place: the link beside it has the id. */
export function withoutIds(text: string): string {
  return text.replace(/: `tugline job explain [^`]+`.*$/, "").replace(new RegExp(jobId, "g"), (id) => `…${id.slice(-6)}`);
}
