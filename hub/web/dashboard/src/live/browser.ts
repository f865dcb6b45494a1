import type { Surroundings } from "./feed";

/** surroundings are those of a browser's page or worker. */
export const surroundings: Surroundings = {
  open: (lastId, signal) =>
    fetch("/v1/feed", {
      credentials: "same-origin",
      cache: "no-store",
      signal,
      headers: { Accept: "text/event-stream", ...(lastId ? { "Last-Event-ID": lastId } : {}) },
    }),
  now: () => Date.now(),
  later: (ms, f) => {
    const timer = setTimeout(f, ms);
    return () => clearTimeout(timer);
  },
  random: () => Math.random(),
};

/** Ask is what a page says to whoever has the connection. */
export type Ask = { ask: "hello" | "visible" | "hidden" | "bye" | "retry" | "alive" };

/**
 * Audience knows which pages there are and whether any is seen. The connection is
 * kept for a while after the last was hidden: people look away and back.
 */
export class Audience<P> {
  private pages = new Map<P, { seen: boolean; at: number }>();
  private undo: (() => void) | undefined;

  constructor(
    private readonly env: Pick<Surroundings, "now" | "later">,
    private readonly on: () => void,
    private readonly off: () => void,
    private readonly grace = 30_000,
    private readonly gone = 180_000, // a page that said nothing for so long is closed: some go without a word
  ) {}

  hear(page: P, ask: Ask["ask"]) {
    if (ask === "bye") this.pages.delete(page);
    else if (ask === "hello" || ask === "visible") this.pages.set(page, { seen: true, at: this.env.now() });
    else if (ask === "hidden") this.pages.set(page, { seen: false, at: this.env.now() });
    else this.pages.set(page, { seen: this.pages.get(page)?.seen ?? true, at: this.env.now() });
    this.look();
  }

  all(): P[] {
    return [...this.pages.keys()];
  }

  look() {
    const now = this.env.now();
    for (const [p, s] of this.pages) if (now - s.at > this.gone) this.pages.delete(p);
    const seen = [...this.pages.values()].some((s) => s.seen);
    if (seen) {
      this.undo?.();
      this.undo = undefined;
      this.on();
    } else if (!this.undo) {
      this.undo = this.env.later(this.grace, () => {
        this.undo = undefined;
        this.off();
      });
    }
  }
}
