import { describe, expect, test } from "vitest";
import { arranged } from "../src/lib/arranged";
import { converse, headline, settled, unwrapped, type AgentEvent } from "../src/lib/conversation";
import { blank, eligible, like, submission } from "../src/lib/draft";
import { bytes, clock, duration, span, utc, when } from "../src/lib/format";
import { align, decode } from "../src/lib/frames";
import { asText, journal, note } from "../src/lib/journal";
import { lines } from "../src/lib/lines";
import { series } from "../src/lib/series";
import { pairs, size, words } from "../src/lib/words";
import type { Schemas } from "../src/api/client";

function frame(kind: number, text: string, at = 1_764_550_000_000): Uint8Array {
  const payload = new TextEncoder().encode(text);
  const b = new Uint8Array(16 + payload.length);
  const v = new DataView(b.buffer);
  b[0] = kind;
  v.setUint32(4, payload.length);
  v.setBigUint64(8, BigInt(at));
  b.set(payload, 16);
  return b;
}
const join = (...all: Uint8Array[]) => Uint8Array.from(all.flatMap((a) => [...a]));
const text = (b: Uint8Array) => new TextDecoder().decode(b);

describe("frames", () => {
  const stream = join(frame(1, "one\n"), frame(2, "two\n"), frame(3, '{"reason":"end"}'), frame(1, "three\n"), frame(1, "four\n"));
  test("are decoded, the last only when it is whole", () => {
    expect(decode(stream).frames.map((f) => f.kind)).toEqual(["stdout", "stderr", "mark", "stdout", "stdout"]);
    const cut = decode(stream.subarray(0, stream.length - 1));
    expect(cut.frames.length).toBe(4);
    expect(text(cut.frames[3]!.payload)).toBe("three\n");
  });
  test("are found again from any byte", () => {
    const first = 16 + 4;
    for (let from = 1; from <= first; from++) expect(from + align(stream.subarray(from))).toBe(first);
    expect(align(stream)).toBe(0);
  });
  test("are not seen in text", () => {
    expect(align(new TextEncoder().encode("x".repeat(100_000)))).toBe(-1);
  });
});

test("lines of JSON come whole, and a reader knows where it can go on", () => {
  const all = new TextEncoder().encode('{"n":1}\nnot json\n{"s":"ä"}\n{"n":3');
  for (const n of [1, 3, 5, 100]) {
    const got: unknown[] = [];
    const take = lines((v) => got.push(v));
    let at = 0;
    for (let i = 0; i < all.length; i += n) at += take(all.subarray(i, i + n));
    expect(got).toEqual([{ n: 1 }, { s: "ä" }]);
    expect(text(all.subarray(at))).toBe('{"n":3');
  }
});

describe("conversation", () => {
  const call = (id: string, over: Partial<AgentEvent> = {}): AgentEvent => ({ type: "command_execution", id, command: "ls", status: "completed", ...over });
  test("an item that is told twice is one, as it is now, where it began", () => {
    const got = settled([call("1", { status: "in_progress" }), { type: "agent_message", id: "2", text: "hm" }, call("1", { exit_code: 3, status: "failed" })]);
    expect(got.map((e) => [e.type, e.status, e.exit_code])).toEqual([["command_execution", "failed", 3], ["agent_message", undefined, undefined]]);
  });
  test("calls that follow one another are one group, and the newest two are open", () => {
    const got = converse([{ type: "agent_message", text: "I look" }, call("1"), call("2"), { type: "agent_message", text: "and" }, call("3"), { type: "usage" }, call("4")]);
    expect(got.map((p) => p.kind)).toEqual(["prose", "tools", "prose", "tools"]);
    expect(got.flatMap((p) => (p.kind === "tools" ? p.calls.map((c) => c.open) : []))).toEqual([false, false, true, true]);
  });
  test("of a plan the last word counts", () => {
    const plan = (done: boolean): AgentEvent => ({ type: "todo", items: [{ text: "a", completed: done }] });
    const got = converse([plan(false), { type: "agent_message", text: "x" }, plan(true)]);
    expect(got.map((p) => p.kind)).toEqual(["prose", "plan"]);
    expect(got[1]!.kind === "plan" && got[1]!.event.items![0]!.completed).toBe(true);
  });
  test("a call's headline is what it did", () => {
    expect(unwrapped("/bin/bash -lc 'echo it'\\''s'")).toBe("echo it's");
    expect(headline({ type: "file_change", changes: [{ path: "a", kind: "add" }, { path: "b", kind: "update" }] })).toBe("a, b");
    expect(headline({ type: "mcp_tool_call", server: "docs", tool: "search" })).toBe("docs · search");
  });
});

describe("a command line", () => {
  test.each([
    ["make test", ["make", "test"]],
    [`sh -c 'echo "a b"'`, ["sh", "-c", 'echo "a b"']],
    [`a\\ b "c\\"d" "\\n" ''`, ["a b", 'c"d', "\\n", ""]],
    ["  ", []],
    ["echo 'open", undefined],
  ])("%s", (line, want) => expect(words(line)).toEqual(want));
  test("pairs and sizes", () => {
    expect(pairs("a=1, b=x=y oops")).toEqual({ map: { a: "1", b: "x=y" }, wrong: ["oops"] });
    expect([size("20GiB"), size("1.5k"), size("7"), size("2 MB")]).toEqual([20 * 2 ** 30, 1500, 7, 2_000_000]);
    expect(size("many")).toBeNaN();
  });
});

describe("a draft", () => {
  test("says what is missing, and asks for nothing that was not said", () => {
    expect(submission(blank)).toEqual({ body: { kind: "agent", prompt: "", permissions: "workspace" }, wrong: { prompt: "empty" } });
    expect(submission({ ...blank, kind: "exec", command: "make 'x", disk: "much", labels: "gpu", priority: "11" }).wrong).toEqual({ command: "quote", disk: "size", labels: "pair", priority: "number" });
  });
  test("has all that was written", () => {
    const { body, wrong } = submission({ ...blank, kind: "exec", command: "make test", repo: "https://x/y", ref: "main", on: "studio", os: "linux", docker: true, memory: "8GiB", labels: "gpu=yes", env: "CI=1", timeout: "1h", push: "out", priority: "-2" });
    expect(wrong).toEqual({});
    expect(body).toEqual({ kind: "exec", argv: ["make", "test"], repo: { url: "https://x/y", ref: "main" }, on: "studio", needs: { os: "linux", docker: true, memory: 8 * 2 ** 30 }, require: { gpu: "yes" }, env: { CI: "1" }, timeout: "1h", push: "out", priority: -2 });
  });
  test("of an old job gives the same job again", () => {
    const spec = { kind: "exec", argv: ["grep", "it's", "a b"], on_lost: "hold", origin: { kind: "manual" }, permissions: "workspace", harness: "exec", require: { gpu: "yes" }, timeouts: {} };
    expect(submission(like({ spec } as unknown as Schemas["Job"], "")).body).toMatchObject({ kind: "exec", argv: spec.argv, require: spec.require });
  });
  test("offers only agents that could be had", () => {
    const h = (name: string, signed_in: string, models?: string[]) => ({ name, signed_in, models });
    const r = (...harnesses: unknown[]) => ({ harnesses }) as unknown as Schemas["Runner"];
    expect([...eligible([r(h("exec", "yes"), h("codex", "yes", ["b"])), r(h("claude", "no"), h("codex", "unknown", ["a"]))])]).toEqual([["codex", ["a", "b"]]]);
  });
});

test("a gap in the samples stays a gap", () => {
  const p = (at: string, cpu: number | null, gap = false) => ({ at, cpu, gap, free: 1, memory: 2, load: 3, io: null, cache_free: null, docker: "ready" });
  const s = series([p("2026-12-01T00:00:00Z", 0.5), p("2026-12-01T00:10:00Z", 0.7, true)]);
  expect(s.of.cpu).toEqual([0.5, null, 0.7]);
  expect(s.times[1]! - s.times[0]!).toBe(300);
});

describe("runners", () => {
  const r = (name: string, over: object = {}) => ({ id: name, name, state: "online", os: "linux", arch: "amd64", version: "1", ring: "all", labels: {}, harnesses: [], slots: { used: 0 }, health: {}, hold: null, ...over }) as unknown as Schemas["Runner"];
  const all = [r("r10", { slots: { used: 2 } }), r("r2", { labels: { gpu: "yes" } }), r("r1", { hold: { since: "", drain: true } })];
  const names = (search: string, state: string, sort: string) => arranged([...all], search, state, sort).map((x) => x.name);
  test("by name as people count, and round", () => {
    expect(names("", "", "name")).toEqual(["r1", "r2", "r10"]);
    expect(names("", "", "-name")).toEqual(["r10", "r2", "r1"]);
    expect(names("", "", "slots")[0]).toBe("r10");
    expect(names("", "", "nonsense")).toEqual(["r1", "r2", "r10"]);
  });
  test("that fit a search or a state", () => {
    expect(names("gpu=yes LINUX", "", "name")).toEqual(["r2"]);
    expect(names("", "draining", "name")).toEqual(["r1"]);
  });
});

describe("format", () => {
  test("sizes and times keep two figures that matter", () => {
    expect([bytes(0), bytes(1023), bytes(1536), bytes(2 ** 30 * 12.34), bytes(null)]).toEqual(["0 B", "1023 B", "1.50 KiB", "12.3 GiB", "–"]);
    expect([span(900), span(59_000), span(125_000), span(700_000), span(2 * 3600_000 + 300_000), span(3 * 86_400_000)]).toEqual(["900 ms", "59 s", "2 min 5 s", "11 min", "2 h 5 min", "3 d"]);
    expect(duration("2160h0m1.5s")).toBe(2160 * 3600_000 + 1500);
  });
  test("a time that was never set is none", () => {
    expect(when("0001-01-01T00:00:00Z")).toBeUndefined();
    expect(when(null)).toBeUndefined();
    const at = Date.UTC(2026, 11, 1, 12, 0, 0);
    expect(utc(at)).toBe("2026-12-01 12:00:00 UTC");
    expect(clock(at, at + 3 * 86_400_000)).toMatch(/^2026-1[12]-\d\d \d\d:\d\d$/);
  });
});

test("the journal counts what repeats, and can be copied whole", () => {
  journal.set({ entries: [], unread: 0 });
  note("no answer", "unreachable", undefined, "http://hub/v1/jobs?x=1", 1000);
  note("no answer", "unreachable", undefined, "http://hub/v1/jobs?x=1", 2000);
  note("internal", "internal", "req-1", undefined, 3000);
  const { entries, unread } = journal.get();
  expect(unread).toBe(2);
  expect(entries.map((e) => e.times)).toEqual([1, 2]);
  expect(asText(entries)).toBe("1970-01-01T00:00:03.000Z  internal  -  req-1  internal\n1970-01-01T00:00:02.000Z  unreachable  /v1/jobs  -  no answer  ×2");
});
