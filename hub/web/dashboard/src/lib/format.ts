const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** bytes writes a size with three figures that matter. */
export function bytes(n: number | null | undefined): string {
  if (n === null || n === undefined || n < 0) return "–";
  let u = 0;
  let v = n;
  while (v >= 1024 && u < units.length - 1) {
    v /= 1024;
    u++;
  }
  return `${u === 0 || v >= 100 ? Math.round(v) : v >= 10 ? v.toFixed(1) : v.toFixed(2)} ${units[u]}`;
}

/** span writes a length of time with its two largest units. */
export function span(ms: number): string {
  if (!Number.isFinite(ms)) return "–";
  const s = Math.max(0, Math.floor(ms / 1000));
  if (ms > 0 && ms < 1000) return `${Math.round(ms)} ms`;
  if (s < 60) return `${s} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return m < 10 && s % 60 ? `${m} min ${s % 60} s` : `${m} min`;
  const h = Math.floor(m / 60);
  if (h < 48) return m % 60 && h < 10 ? `${h} h ${m % 60} min` : `${h} h`;
  return `${Math.floor(h / 24)} d`;
}

const durationPart = /(\d+(?:\.\d+)?)(h|ms|m|s|µs|us|ns)/g;
const partMs: Record<string, number> = { h: 3_600_000, m: 60_000, s: 1000, ms: 1, "µs": 0.001, us: 0.001, ns: 0.000_001 };

/** duration reads what Go writes, such as 2160h0m0s. */
export function duration(text: string): number {
  let ms = 0;
  for (const [, n, u] of text.matchAll(durationPart)) ms += Number(n) * (partMs[u ?? "s"] ?? 0);
  return ms;
}

const zero = "0001-01-01T00:00:00Z";

/** when reads a time; what was never set is undefined. */
export function when(at: string | null | undefined): number | undefined {
  if (!at || at === zero) return undefined;
  const n = Date.parse(at);
  return Number.isNaN(n) ? undefined : n;
}

const pad = (n: number) => String(n).padStart(2, "0");

/** clock writes a time in the local zone: the day only where it is not today. */
export function clock(at: number, now: number): string {
  const d = new Date(at);
  const time = `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
  return d.toDateString() === new Date(now).toDateString() ? time : `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${time.slice(0, 5)}`;
}

/** utc writes a time for the hover. */
export function utc(at: number): string {
  return new Date(at).toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC");
}

/** count writes a number with its thousands apart. */
export function count(n: number): string {
  return n.toLocaleString("en-US").replaceAll(",", " ");
}

/** short cuts a long id so that it can still be told from others. */
export function short(id: string): string {
  return id.length > 12 ? id.slice(-8) : id;
}

/** sha cuts a commit or digest as git does. */
export function sha(s: string): string {
  return s.slice(0, 10);
}
