import { clock, span, utc, when } from "../lib/format";
import { useNow } from "../lib/now";
import { t } from "../text/en";

function read(at: string | number | null | undefined): number | undefined {
  return typeof at === "number" ? at : when(at);
}

/** Age is how long ago something was. */
export function Age({ at, why, ago }: { at: string | number | null | undefined; why?: string; ago?: boolean }) {
  const now = useNow();
  const n = read(at);
  if (n === undefined) return <span className="quiet">–</span>;
  const length = span(now - n);
  return (
    <time className="age num" dateTime={new Date(n).toISOString()} title={[why, `${clock(n, now)} · ${utc(n)}`].filter(Boolean).join("\n")}>
      {ago ? t.time.ago(length) : length}
    </time>
  );
}

/** Until is how long something has still to go. */
export function Until({ at }: { at: string | number | null | undefined }) {
  const now = useNow();
  const n = read(at);
  if (n === undefined) return <span className="quiet">–</span>;
  return (
    <time className="age num" dateTime={new Date(n).toISOString()} title={`${clock(n, now)} · ${utc(n)}`}>
      {n > now ? t.time.in(span(n - now)) : t.time.due}
    </time>
  );
}

/** Clock is a time in the reader's own zone, in UTC at hover. */
export function Clock({ at }: { at: string | number | null | undefined }) {
  const n = read(at);
  if (n === undefined) return <span className="quiet">–</span>;
  return (
    <time className="num" dateTime={new Date(n).toISOString()} title={utc(n)}>
      {clock(n, Date.now())}
    </time>
  );
}

/** Took is the time between two moments, or until now. */
export function Took({ from, to }: { from: string | null | undefined; to: string | null | undefined }) {
  const now = useNow();
  const a = read(from);
  if (a === undefined) return <span className="quiet">–</span>;
  return <span className="num">{span((read(to) ?? now) - a)}</span>;
}
