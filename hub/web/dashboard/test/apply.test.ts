import { QueryClient } from "@tanstack/react-query";
import { describe, expect, test } from "vitest";
import type { Schemas } from "../src/api/client";
import type { Row } from "../src/api/slim";
import { applier, beaten, fits, placed, removed, withRunners } from "../src/live/apply";

const row = (id: string, over: Partial<Row> = {}): Row => ({
  id, state: "queued", kind: "exec", harness: "exec", model: "", title: "make", detail: "", since: "", created: "", started: null, finished: null,
  runner: "", runnerId: "", repo: "", origin: "", turn: 1, cancelling: false, revision: 1, ...over,
});
const list = (...jobs: Row[]) => ({ pages: [{ jobs, next: "n" }], pageParams: [undefined] });
const runner = (id: string, over: Partial<Schemas["Runner"]> = {}) => ({ id, name: id, state: "online", last_heartbeat: null, ...over }) as Schemas["Runner"];
const job = (id: string, state: string, revision: number) =>
  ({ id, state, revision, kind: "exec", harness: "exec", model: "", effective: {}, reason: { since: "" }, evidence: {}, spec: { origin: {}, argv: ["make", "test"] }, runner: "", runner_id: "", repo: "", turn: 1 }) as unknown as Schemas["Job"];

describe("a list of jobs", () => {
  test("shows a change in place, and never an older one", () => {
    const was = list(row("b", { revision: 5 }), row("a"));
    expect(placed(was, row("b", { state: "running", revision: 6 }), {}).pages[0]!.jobs[0]!.state).toBe("running");
    expect(placed(was, row("b", { state: "running", revision: 4 }), {})).toBe(was);
  });
  test("takes in a new job at its head, but none that is older than what is loaded", () => {
    const was = list(row("b"), row("a"));
    expect(placed(was, row("c"), {}).pages[0]!.jobs.map((j) => j.id)).toEqual(["c", "b", "a"]);
    expect(placed(was, row("0"), {})).toBe(was);
  });
  test("lets go of a job that fits no more", () => {
    expect(placed(list(row("b"), row("a")), row("a", { state: "running", revision: 2 }), { state: "queued" }).pages[0]!.jobs.map((j) => j.id)).toEqual(["b"]);
    expect(removed(list(row("b"), row("a")), "b").pages[0]!.jobs.map((j) => j.id)).toEqual(["a"]);
  });
  test("keeps a title that the change does not tell", () => {
    expect(placed(list(row("a", { title: "mend it" })), row("a", { title: "", revision: 2 }), {}).pages[0]!.jobs[0]!.title).toBe("mend it");
  });
  test.each([
    [{ state: "queued,running" }, true],
    [{ state: "failed" }, false],
    [{ active: true }, true],
    [{ runner: "studio" }, false],
    [{ q: "MAKE" }, true],
    [{ q: "make nothing" }, false],
  ])("fits %j: %s", (f, want) => expect(fits(row("a"), f)).toBe(want));
});

describe("runners", () => {
  test("are changed, added and taken out", () => {
    const got = withRunners([runner("a"), runner("b")], new Map([["a", runner("a", { state: "stale" })], ["b", null], ["c", runner("c")]]));
    expect(got.map((r) => [r.id, r.state])).toEqual([["a", "stale"], ["c", "online"]]);
  });
  test("are heard without being asked for", () => {
    const was = [runner("a"), runner("b")];
    expect(beaten(was, { a: 1000 }).map((r) => r.last_heartbeat)).toEqual(["1970-01-01T00:00:01.000Z", null]);
    expect(beaten(was, { z: 1 })).toBe(was);
  });
});

describe("applier", () => {
  const setup = () => {
    const cache = new QueryClient();
    const due: (() => void)[] = [];
    const hear = applier(cache, (_, f) => due.push(f));
    const run = () => {
      while (due.length) due.shift()!();
    };
    const stale = (key: unknown[]) => cache.getQueryState(key)?.isInvalidated;
    return { cache, hear, run, stale, due };
  };
  test("gathers a burst and draws it once", () => {
    const { cache, hear, run, due } = setup();
    cache.setQueryData(["jobs", {}], list(row("a")));
    let drawn = 0;
    cache.getQueryCache().subscribe((e) => {
      if (e.type === "updated" && e.action.type === "success") drawn++;
    });
    for (let i = 2; i < 100; i++) hear({ kind: "event", type: "changes", data: { jobs: [job("a", i < 99 ? "running" : "succeeded", i)] } });
    expect(due.length).toBe(1);
    run();
    expect(drawn).toBe(1);
    expect(cache.getQueryData<ReturnType<typeof list>>(["jobs", {}])!.pages[0]!.jobs[0]!.state).toBe("succeeded");
  });
  test("asks anew for what an event only names", () => {
    const { cache, hear, run, stale } = setup();
    for (const k of [["members"], ["status"], ["tokens"], ["job", "a"]]) cache.setQueryData(k, {});
    hear({ kind: "event", type: "changes", data: { stale: ["members"], jobs: [job("a", "running", 2)] } });
    run();
    expect(stale(["members"])).toBe(true);
    expect(stale(["status"])).toBe(true);
    expect(stale(["job", "a"])).toBe(true);
    expect(stale(["tokens"])).toBe(false);
  });
  test("another leader and new records are seen by the tick", () => {
    const { cache, hear, run, stale } = setup();
    for (const k of [["members"], ["audit", {}]]) cache.setQueryData(k, {});
    hear({ kind: "event", type: "hello", data: { leader: "n1", audit: 4 } });
    run();
    expect(stale(["members"])).toBe(false);
    hear({ kind: "event", type: "tick", data: { leader: "n2", audit: 5 } });
    run();
    expect(stale(["members"])).toBe(true);
    expect(stale(["audit", {}])).toBe(true);
  });
  test("a reset makes everything stale", () => {
    const { cache, hear, stale } = setup();
    cache.setQueryData(["runners"], []);
    hear({ kind: "reset", why: "" });
    expect(stale(["runners"])).toBe(true);
  });
});
