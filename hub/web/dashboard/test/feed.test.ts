import { describe, expect, test } from "vitest";
import { Audience } from "../src/live/browser";
import { backoff, Feed, type Surroundings, type Told } from "../src/live/feed";
import { parser, type Message } from "../src/live/sse";

describe("parser", () => {
  const stream = 'id: 1-2\nevent: changes\ndata: {"a":\ndata: 1}\n\n: still here\n\nevent: tick\ndata: {}\r\n\r\ndata: x\n\n';
  const want: Message[] = [
    { id: "1-2", type: "changes", data: '{"a":\n1}' },
    { id: undefined, type: "tick", data: "{}" },
    { id: undefined, type: "message", data: "x" },
  ];
  test.each([1, 2, 3, 7, 1000])("pieces of %i", (n) => {
    const got: Message[] = [];
    const put = parser((m) => got.push(m));
    for (let i = 0; i < stream.length; i += n) put(stream.slice(i, i + n));
    expect(got).toEqual(want);
  });
});

/** World is a browser whose clock and hub a test turns. */
class World implements Surroundings {
  time = 0;
  timers: { at: number; f: () => void }[] = [];
  asked: (string | undefined)[] = [];
  answers: (() => Response | Promise<Response>)[] = [];
  streams: ReadableStreamDefaultController<Uint8Array>[] = [];

  now = () => this.time;
  random = () => 1;
  later = (ms: number, f: () => void) => {
    const timer = { at: this.time + ms, f };
    this.timers.push(timer);
    return () => {
      this.timers = this.timers.filter((x) => x !== timer);
    };
  };
  open = (lastId: string | undefined) => {
    this.asked.push(lastId);
    const next = this.answers.shift();
    return Promise.resolve(next ? next() : this.stream());
  };
  stream = () => new Response(new ReadableStream({ start: (c) => void this.streams.push(c) }));
  async say(text: string) {
    this.streams.at(-1)!.enqueue(new TextEncoder().encode(text));
    await settle();
  }
  async pass(ms: number) {
    const end = this.time + ms;
    for (;;) {
      const next = this.timers.filter((x) => x.at <= end).sort((a, b) => a.at - b.at)[0];
      if (!next) break;
      this.timers = this.timers.filter((x) => x !== next);
      this.time = next.at;
      next.f();
      await settle();
    }
    this.time = end;
  }
}

const settle = () => new Promise<void>((r) => setTimeout(r, 0));

async function world() {
  const w = new World();
  const told: Told[] = [];
  const feed = new Feed(w, (x) => told.push(x));
  return { w, told, feed, states: () => told.flatMap((x) => (x.kind === "status" ? [x.status.state] : [])) };
}

describe("feed", () => {
  test("goes on after the last event it has", async () => {
    const { w, feed, states } = await world();
    feed.start();
    await settle();
    await w.say('id: 1-7\nevent: changes\ndata: {}\n\nevent: presence\ndata: {}\n\n');
    w.streams[0]!.close();
    await settle();
    expect(states().at(-1)).toBe("waiting");
    await w.pass(1000);
    expect(w.asked).toEqual([undefined, "1-7"]);
    expect(feed.current().state).toBe("live");
  });

  test("waits longer after each failure, and begins anew after success", async () => {
    const { w, feed } = await world();
    const bad = () => Promise.reject(new Error("no network"));
    w.answers = [bad, bad, bad];
    feed.start();
    await settle();
    const pauses: number[] = [];
    for (let i = 0; i < 3; i++) {
      pauses.push(feed.current().retryAt! - w.time);
      await w.pass(pauses.at(-1)!);
    }
    expect(pauses).toEqual([500, 1000, 2000]);
    expect(feed.current().state).toBe("live");
    w.streams[0]!.close();
    await settle();
    expect(feed.current().retryAt! - w.time).toBe(500);
  });

  test("takes a silent connection for dead", async () => {
    const { w, feed } = await world();
    feed.start();
    await settle();
    await w.pass(14_000);
    await w.say(": still here\n\n");
    await w.pass(14_000);
    expect(feed.current().state).toBe("live");
    await w.pass(1100);
    expect(feed.current()).toMatchObject({ state: "waiting", heard: 14_000 });
  });

  test("says reset, and goes on from where that says", async () => {
    const { w, told, feed } = await world();
    feed.start();
    await settle();
    await w.say('id: 1-7\nevent: changes\ndata: {}\n\nid: 2-3\nevent: reset\ndata: {"detail":"another epoch"}\n\n');
    expect(told).toContainEqual({ kind: "reset", why: "another epoch" });
    w.streams[0]!.close();
    await settle();
    await w.pass(1000);
    expect(w.asked).toEqual([undefined, "2-3"]);
  });

  test("a first hello has what was loaded before it loaded anew, a later one has not", async () => {
    const { w, told, feed } = await world();
    feed.start();
    await settle();
    await w.say("id: 1-7\nevent: hello\ndata: {}\n\n");
    w.streams[0]!.close();
    await settle();
    await w.pass(1000);
    await w.say("event: hello\ndata: {}\n\n");
    expect(told.filter((x) => x.kind === "reset").length).toBe(1);
  });

  test("holds no connection while paused", async () => {
    const { w, feed } = await world();
    feed.start();
    await settle();
    await w.say("id: 1-9\nevent: tick\ndata: {}\n\n");
    feed.pause();
    await w.pass(100_000);
    expect(feed.current().state).toBe("paused");
    expect(w.asked.length).toBe(1);
    feed.resume();
    await settle();
    expect(w.asked).toEqual([undefined, "1-9"]);
  });

  test("does not try again by itself where it is refused", async () => {
    const { w, feed } = await world();
    w.answers = [() => new Response("", { status: 401 })];
    feed.start();
    await settle();
    await w.pass(100_000);
    expect(feed.current().state).toBe("refused");
    expect(w.asked.length).toBe(1);
    feed.retry();
    await settle();
    expect(feed.current().state).toBe("live");
  });

  test("pauses are bounded, and half by chance", () => {
    expect(backoff(50, 1)).toBe(30_000);
    expect(backoff(50, 0)).toBe(15_000);
  });
});

describe("audience", () => {
  test("the connection is kept while any page is seen, and for a while after", async () => {
    const w = new World();
    const said: string[] = [];
    const a = new Audience<string>(w, () => said.push("on"), () => said.push("off"));
    a.hear("one", "hello");
    a.hear("two", "hello");
    a.hear("one", "hidden");
    await w.pass(60_000);
    expect(said).not.toContain("off");
    a.hear("two", "hidden");
    await w.pass(29_000);
    expect(said).not.toContain("off");
    await w.pass(2000);
    expect(said.at(-1)).toBe("off");
    a.hear("one", "visible");
    expect(said.at(-1)).toBe("on");
  });

  test("a page that went without a word is forgotten", async () => {
    const w = new World();
    const a = new Audience<string>(w, () => {}, () => {});
    a.hear("one", "hello");
    w.time += 200_000;
    a.look();
    expect(a.all()).toEqual([]);
  });
});
