import { store } from "../lib/store";
import { Audience, surroundings, type Ask } from "./browser";
import { Feed, type Status, type Told } from "./feed";

export const connection = store<Status>({ state: "connecting", since: Date.now() });

interface Line {
  send(ask: Ask["ask"]): void;
  close(): void;
}

const channelName = "tugline-feed";

/** shared is a line to the worker that all tabs have. */
function shared(hear: (t: Told) => void): Line {
  const worker = new SharedWorker(new URL("./worker.ts", import.meta.url), { type: "module", name: channelName });
  worker.port.onmessage = (m: MessageEvent<Told>) => hear(m.data);
  worker.port.start();
  return { send: (ask) => worker.port.postMessage({ ask } satisfies Ask), close: () => worker.port.close() };
}

/**
 * elected is for browsers without shared workers: the tab that holds a lock has the
 * connection and passes on what it hears. Where there are no locks (a page over plain
 * HTTP), each tab has its own.
 */
function elected(hear: (t: Told) => void): Line {
  const locks = navigator.locks as LockManager | undefined;
  const me = Math.random().toString(36).slice(2);
  const channel = locks && typeof BroadcastChannel !== "undefined" ? new BroadcastChannel(channelName) : undefined;
  let lead: { feed: Feed; audience: Audience<string> } | undefined;
  let free: (() => void) | undefined;
  const begin = () => {
    const feed = new Feed(surroundings, (told) => {
      hear(told);
      channel?.postMessage({ told });
    });
    const audience = new Audience<string>(
      surroundings,
      () => {
        feed.start();
        feed.resume();
      },
      () => feed.pause(),
    );
    lead = { feed, audience };
    audience.hear(me, document.hidden ? "hidden" : "hello");
    // Who was told by the tab before has missed what came in between.
    hear({ kind: "reset", why: "another tab had the connection" });
    channel?.postMessage({ told: { kind: "reset", why: "another tab has the connection" } });
  };
  if (channel && locks) {
    channel.onmessage = (m: MessageEvent<{ told?: Told; from?: string; ask?: Ask["ask"] }>) => {
      if (m.data.told && !lead) hear(m.data.told);
      if (m.data.ask && m.data.from && lead) {
        lead.audience.hear(m.data.from, m.data.ask);
        if (m.data.ask === "retry") lead.feed.retry();
        if (m.data.ask === "hello") channel.postMessage({ told: { kind: "status", status: lead.feed.current() } });
      }
    };
    void locks.request(channelName, () => {
      begin();
      return new Promise<void>((r) => (free = r));
    });
  } else {
    begin();
  }
  return {
    send(ask) {
      if (lead) {
        lead.audience.hear(me, ask);
        if (ask === "retry" || (ask === "hello" && lead.feed.current().state === "refused")) lead.feed.retry();
      } else channel?.postMessage({ from: me, ask });
    },
    close() {
      lead?.feed.stop();
      free?.();
      channel?.close();
    },
  };
}

let line: Line | undefined;

/** listen begins to hear the hub's changes in this tab, until it is called off. */
export function listen(hear: (t: Told) => void): () => void {
  const take = (told: Told) => {
    if (told.kind === "status") connection.set(told.status);
    hear(told);
  };
  const l = typeof SharedWorker !== "undefined" ? shared(take) : elected(take);
  line = l;
  const look = () => l.send(document.hidden ? "hidden" : "visible");
  const leave = () => l.send("bye");
  const back = (e: PageTransitionEvent) => e.persisted && l.send("hello");
  l.send("hello");
  if (document.hidden) look();
  document.addEventListener("visibilitychange", look);
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", back);
  const alive = setInterval(() => l.send("alive"), 45_000);
  return () => {
    clearInterval(alive);
    document.removeEventListener("visibilitychange", look);
    window.removeEventListener("pagehide", leave);
    window.removeEventListener("pageshow", back);
    leave();
    l.close();
    line = undefined;
  };
}

/** retry asks for a try at once. */
export function retry() {
  line?.send("retry");
}
