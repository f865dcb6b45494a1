import { store } from "./store";

/** Entry is one error that the page met. */
export interface Entry {
  n: number;
  at: number;
  text: string;
  code: string;
  reference?: string; // the hub's own name for what happened
  where?: string; // path that was asked
  times: number;
}

const most = 200; // entries that are kept

/** journal has the errors of this tab, newest first. */
export const journal = store<{ entries: Entry[]; unread: number }>({ entries: [], unread: 0 });

/** note adds an error; the same one again within a minute is counted, not repeated. */
export function note(text: string, code: string, reference?: string, url?: string, now = Date.now()) {
  const where = url ? new URL(url, "http://hub").pathname : undefined;
  journal.set(({ entries, unread }) => {
    const first = entries[0];
    if (first && first.text === text && first.code === code && now - first.at < 60_000) {
      return { entries: [{ ...first, at: now, times: first.times + 1, reference: reference ?? first.reference }, ...entries.slice(1)], unread };
    }
    const e: Entry = { n: (first?.n ?? 0) + 1, at: now, text, code, reference, where, times: 1 };
    return { entries: [e, ...entries].slice(0, most), unread: unread + 1 };
  });
}

/** asText is the journal for a report to somebody else. */
export function asText(entries: Entry[]): string {
  return entries
    .map((e) => [new Date(e.at).toISOString(), e.code, e.where ?? "-", e.reference ?? "-", e.text, e.times > 1 ? `×${e.times}` : ""].join("  ").trimEnd())
    .join("\n");
}
