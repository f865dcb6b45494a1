import { parser } from "./sse";

/** Status is what the page can say of its connection. */
export interface Status {
  state: "connecting" | "live" | "waiting" | "paused" | "refused";
  since: number; // in this state
  heard?: number; // when the hub last said anything
  retryAt?: number; // while waiting
  why?: string;
}

/** Told is what a feed gives to its readers. */
export type Told = { kind: "status"; status: Status } | { kind: "event"; type: string; data: unknown } | { kind: "reset"; why: string };

/** Surroundings are what a feed needs of the browser; tests bring their own. */
export interface Surroundings {
  open(lastId: string | undefined, signal: AbortSignal): Promise<Response>;
  now(): number;
  later(ms: number, f: () => void): () => void;
  random(): number;
}

const first = 500; // ms before the first try again
const longest = 30_000; // ms between tries at most
const silence = 15_000; // ms without a byte after which a connection is taken for dead; the hub ticks every 5 s

/** backoff gives the pause before try n, with half of it by chance so that pages don't come at once. */
export function backoff(n: number, random: number): number {
  const full = Math.min(longest, first * 2 ** Math.min(n, 10));
  return full / 2 + (full / 2) * random;
}

/**
 * Feed keeps one stream of the hub open: it goes on after the last event it has, waits
 * longer after each failure, and says reset where events are missing.
 */
export class Feed {
  private lastId: string | undefined;
  private tries = 0;
  private wanted = false;
  private paused = false;
  private run = 0; // which connection is the present one
  private abort: AbortController | undefined;
  private undo: (() => void) | undefined;
  private status: Status;

  constructor(
    private readonly env: Surroundings,
    private readonly tell: (t: Told) => void,
  ) {
    this.status = { state: "connecting", since: env.now() };
  }

  current(): Status {
    return this.status;
  }

  start() {
    if (this.wanted) return;
    this.wanted = true;
    if (!this.paused) void this.connect();
  }

  /** pause closes the connection while nobody looks; resume goes on where it was. */
  pause() {
    if (this.paused) return;
    this.paused = true;
    this.drop();
    this.say({ state: "paused" });
  }

  resume() {
    if (!this.paused) return;
    this.paused = false;
    this.tries = 0;
    if (this.wanted) void this.connect();
  }

  /** now tries at once, where a person asks for it. */
  retry() {
    if (this.paused || !this.wanted || this.status.state === "live" || this.status.state === "connecting") return;
    this.tries = 0;
    void this.connect();
  }

  stop() {
    this.wanted = false;
    this.drop();
  }

  private say(s: Omit<Status, "since" | "heard"> & { heard?: number }) {
    const since = s.state === this.status.state ? this.status.since : this.env.now();
    this.status = { heard: this.status.heard, ...s, since };
    this.tell({ kind: "status", status: this.status });
  }

  private drop() {
    this.run++;
    this.undo?.();
    this.undo = undefined;
    this.abort?.abort();
    this.abort = undefined;
  }

  private fail(run: number, why: string) {
    if (run !== this.run || !this.wanted) return;
    this.drop();
    const pause = backoff(this.tries++, this.env.random());
    this.say({ state: "waiting", why, retryAt: this.env.now() + pause });
    this.undo = this.env.later(pause, () => void this.connect());
  }

  private async connect() {
    this.drop();
    const run = this.run;
    const abort = new AbortController();
    this.abort = abort;
    this.say({ state: "connecting" });
    let watch = this.env.later(silence, () => this.fail(run, "silence"));
    this.undo = () => watch();
    const heard = () => {
      if (run !== this.run) return;
      watch();
      watch = this.env.later(silence, () => this.fail(run, "silence"));
      this.status = { ...this.status, heard: this.env.now() };
    };
    try {
      const r = await this.env.open(this.lastId, abort.signal);
      if (run !== this.run) return;
      if (r.status === 401 || r.status === 403) {
        this.drop();
        this.say({ state: "refused", why: `${r.status}` });
        return;
      }
      if (!r.ok || !r.body) {
        this.fail(run, `${r.status}`);
        return;
      }
      this.tries = 0;
      this.say({ state: "live", heard: this.env.now() });
      const cut = parser((m) => this.take(run, m.id, m.type, m.data), heard);
      const reader = r.body.getReader();
      const text = new TextDecoder();
      for (;;) {
        const { done, value } = await reader.read();
        if (run !== this.run) return;
        if (done) break;
        cut(text.decode(value, { stream: true }));
      }
      this.fail(run, "ended");
    } catch {
      this.fail(run, "unreachable");
    }
  }

  private take(run: number, id: string | undefined, type: string, data: string) {
    if (run !== this.run) return;
    let v: unknown;
    try {
      v = JSON.parse(data);
    } catch {
      return; // nothing that a later release may send ends the stream
    }
    if (type === "reset") {
      // What is shown is worth nothing now; its readers load it anew and go on from here.
      this.lastId = id;
      this.tell({ kind: "reset", why: (v as { detail?: string }).detail ?? "" });
      return;
    }
    // A first connection says where it begins: what was loaded before may be older.
    if (type === "hello" && this.lastId === undefined) this.tell({ kind: "reset", why: "" });
    if (id !== undefined) this.lastId = id;
    this.tell({ kind: "event", type, data: v });
  }
}
