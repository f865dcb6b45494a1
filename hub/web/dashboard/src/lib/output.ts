import { problem, request } from "../api/client";
import { align, decode, type Frame } from "./frames";

/** Place names the recorded output of one attempt. */
export interface Place {
  job: string;
  turn: number;
  attempt: number;
}

/** pane is how much of an output is looked at at a time: the rest is asked for when somebody goes there. */
export const pane = 512 << 10;

export function address(p: Place, query: Record<string, string | number | boolean>): string {
  const q = new URLSearchParams({ turn: String(p.turn), attempt: String(p.attempt) });
  for (const [k, v] of Object.entries(query)) q.set(k, String(v));
  return `/v1/jobs/${p.job}/log?${q}`;
}

async function* pieces(url: string, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const r = await request(url, { signal });
  if (!r.ok) throw await problem(r);
  const reader = r.body?.getReader();
  if (!reader) return;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    void reader.cancel().catch(() => {});
  }
}

function join(a: Uint8Array, b: Uint8Array): Uint8Array {
  const out = new Uint8Array(a.length + b.length);
  out.set(a);
  out.set(b, a.length);
  return out;
}

export interface Pane {
  frames: Frame[];
  start: number; // offset of the first frame
  end: number; // offset after the last
}

/** read gives about one pane of output from an offset on, which need not be where a frame begins. */
export async function read(p: Place, from: number, signal: AbortSignal): Promise<Pane> {
  const stop = new AbortController();
  const quit = () => stop.abort();
  signal.addEventListener("abort", quit);
  let bytes = new Uint8Array();
  const got: Uint8Array[] = [];
  let n = 0;
  try {
    for await (const piece of pieces(address(p, { format: "frames", from }), stop.signal)) {
      got.push(piece);
      n += piece.length;
      if (n >= pane + (64 << 10)) break;
    }
  } finally {
    signal.removeEventListener("abort", quit);
    stop.abort();
  }
  bytes = new Uint8Array(n);
  let at = 0;
  for (const g of got) {
    bytes.set(g, at);
    at += g.length;
  }
  const skip = from === 0 ? 0 : align(bytes);
  if (skip < 0) return { frames: [], start: from, end: from };
  const { frames, used } = decode(bytes.subarray(skip));
  return { frames, start: from + skip, end: from + skip + used };
}

/** follow gives frames as they come, from the beginning of one on, until the output is complete. */
export async function follow(p: Place, from: number, signal: AbortSignal, give: (frames: Frame[], end: number) => void): Promise<void> {
  let rest: Uint8Array = new Uint8Array();
  let end = from;
  for await (const piece of pieces(address(p, { format: "frames", from, follow: true }), signal)) {
    rest = rest.length ? join(rest, piece) : piece;
    const { frames, used } = decode(rest);
    if (used === 0) continue;
    end += used;
    rest = rest.slice(used);
    give(frames, end);
  }
}
