import type { Schemas } from "../api/client";
import { standing } from "./fleet";
import { when } from "./format";

type Runner = Schemas["Runner"];

/** orders are those in which runners can be listed. */
export const orders: Record<string, (a: Runner, b: Runner) => number> = {
  name: (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }),
  state: (a, b) => standing(a).localeCompare(standing(b)) || orders.name!(a, b),
  slots: (a, b) => b.slots.used - a.slots.used || orders.name!(a, b),
  disk: (a, b) => (a.health.sample?.workspace.free ?? Infinity) - (b.health.sample?.workspace.free ?? Infinity),
  memory: (a, b) => (a.health.sample?.memory?.available ?? Infinity) - (b.health.sample?.memory?.available ?? Infinity),
  load: (a, b) => (b.health.sample?.cpu?.load ?? -1) - (a.health.sample?.cpu?.load ?? -1),
  version: (a, b) => a.version.localeCompare(b.version, undefined, { numeric: true }) || orders.name!(a, b),
  heard: (a, b) => (when(b.last_heartbeat) ?? 0) - (when(a.last_heartbeat) ?? 0),
};

/** arranged gives the runners that fit a search and state, in an order; a leading - turns it round. */
export function arranged(all: Runner[], search: string, state: string, sort: string): Runner[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const fit = all.filter((r) => {
    if (state && standing(r) !== state) return false;
    if (words.length === 0) return true;
    const text = [r.name, r.id, r.os, r.arch, r.version, r.ring, ...Object.entries(r.labels).map(([k, v]) => `${k}=${v}`), ...(r.harnesses ?? []).map((h) => h.name)].join(" ").toLowerCase();
    return words.every((w) => text.includes(w));
  });
  const order = orders[sort.replace(/^-/, "")] ?? orders.name!;
  return fit.sort(sort.startsWith("-") ? (a, b) => order(b, a) : order);
}
