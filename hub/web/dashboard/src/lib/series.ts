import type { Schemas } from "../api/client";

type Point = Schemas["HealthPoint"];

export interface Series {
  times: number[]; // seconds
  of: Record<"free" | "memory" | "load" | "cpu" | "io", (number | null)[]>;
}

const keys = ["free", "memory", "load", "cpu", "io"] as const;

/** series makes lines of samples. Where nothing was heard for a while there is a point without a value, so that no line leads over it. */
export function series(points: Point[]): Series {
  const s: Series = { times: [], of: { free: [], memory: [], load: [], cpu: [], io: [] } };
  for (const p of points) {
    const at = Date.parse(p.at) / 1000;
    if (p.gap && s.times.length > 0) {
      s.times.push((s.times.at(-1)! + at) / 2);
      for (const k of keys) s.of[k].push(null);
    }
    s.times.push(at);
    for (const k of keys) s.of[k].push(p[k]);
  }
  return s;
}
