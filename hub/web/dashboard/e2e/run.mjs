// The page in a real browser against real hubs and a real runner. `node e2e/run.mjs WORD`
// runs the scenarios whose names have the word; SHOTS=update writes the pictures that
// are reviewed and kept.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { Mesh, until } from "./mesh.mjs";
import { many } from "./many.mjs";

// A script tag is refused by the page's policy, which is right: axe comes by the debugger.
const axeText = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const shots = new URL("baselines/", import.meta.url).pathname;
const mesh = new Mesh();
const complaints = []; // of the browser: errors of the page, and of its policy
let browser;

async function page(hub, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  const p = await context.newPage();
  p.setDefaultTimeout(60_000);
  p.on("pageerror", (e) => complaints.push(`error: ${e.stack ?? e.message}`));
  p.on("console", (m) => m.type() === "error" && /Content Security Policy/.test(m.text()) && complaints.push(m.text()));
  if (hub) await signIn(p, hub);
  return p;
}

async function signIn(p, hub) {
  await p.goto(hub.url);
  await p.getByLabel("Operator token").fill(mesh.token);
  await p.getByRole("button", { name: "Sign in" }).click();
  await p.getByRole("heading", { name: "Overview" }).waitFor();
}

const see = (p, text, options = {}) => p.getByText(text, options).first().waitFor();
const stateOf = (p) => p.locator(".page-sub .state-word").first();
const is = (p, state, ms = 90_000) => until(`the page shows ${state}`, async () => (await stateOf(p).textContent()) === state, ms);

const scenarios = {
  async "sign in: a wrong token is told, the right one opens the page, signing out ends it"() {
    const p = await page();
    await p.goto(mesh.hubs[0].url);
    await p.getByLabel("Operator token").fill("tgl_wrong");
    await p.getByRole("button", { name: "Sign in" }).click();
    await p.getByRole("alert").waitFor();
    await signIn(p, mesh.hubs[0]);
    await see(p, "Live", { exact: true });
    await p.reload();
    await p.getByRole("heading", { name: "Overview" }).waitFor();
    const paint = await p.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
    console.log(`    first paint ${Math.round(paint)} ms`);
    if (paint > 1000) throw new Error(`first paint after ${paint} ms`);
    await p.getByRole("button", { name: /Signed in as/ }).click();
    await p.getByRole("menuitem", { name: "Sign out" }).click();
    await p.getByLabel("Operator token").waitFor();
    await p.context().close();
  },

  async "submit by keys, watch it live, read its output"() {
    const p = await page(mesh.hubs[0]);
    await p.getByRole("link", { name: "New job" }).first().click();
    await p.getByText("Command", { exact: true }).first().click();
    await p.getByLabel("Command", { exact: true }).last().fill("sh -c 'echo begun; sleep 3; echo done well'");
    await see(p, "With exec, one runner could take it.");
    await p.keyboard.press("Control+Enter");
    await p.getByRole("tab", { name: "Terminal" }).waitFor();
    await is(p, "succeeded");
    await p.getByRole("tab", { name: "Terminal" }).click();
    await p.locator(".xterm-rows", { hasText: "done well" }).waitFor();
    await p.context().close();
  },

  async "an agent: conversation, changes, pictures, evidence, follow-up"() {
    const p = await page(mesh.hubs[0]);
    const job = await mesh.submit({ kind: "agent", harness: "codex", prompt: "Change the greeting.", repo: { url: mesh.repository() } });
    await p.goto(`${mesh.hubs[0].url}/jobs/${job.id}/conversation`);
    await see(p, "Change the greeting.");
    await p.locator(".prose", { hasText: "The greeting now takes a" }).waitFor();
    await is(p, "succeeded");
    if ((await p.locator("details.tool[open]").count()) !== 2) throw new Error("not exactly the two newest calls are open");
    await p.getByRole("tab", { name: "Changes" }).click();
    await p.locator(".diff-file", { hasText: "main_test.go" }).waitFor();
    await p.locator(".diff-code-insert", { hasText: "fmt.Sprintf" }).first().waitFor();
    await p.getByRole("tab", { name: "Artifacts" }).click();
    const img = p.locator(".shot img");
    await img.waitFor();
    if (!(await img.evaluate((i) => i.decode().then(() => i.naturalWidth > 0)))) throw new Error("the picture is not shown");
    await p.getByRole("tab", { name: "Evidence" }).click();
    await see(p, "Accepted");
    await p.getByRole("tab", { name: "Conversation" }).click();
    await p.getByLabel("Follow-up").fill("Now once more.");
    await p.getByLabel("Follow-up").press("Control+Enter");
    await see(p, "Follow-up 2");
    await mesh.state(job.id, "succeeded", "needs_review", "failed");
    await p.context().close();
  },

  async "cancel shows cancelling until it is confirmed"() {
    const p = await page(mesh.hubs[0]);
    const job = await mesh.submit({ kind: "exec", argv: ["sh", "-c", "trap 'sleep 2; exit' TERM; while :; do sleep 0.2; done"] });
    await mesh.state(job.id, "running");
    await p.goto(`${mesh.hubs[0].url}/jobs/${job.id}`);
    await is(p, "running");
    await p.getByRole("button", { name: "Cancel job" }).click();
    await p.getByRole("dialog").getByRole("button", { name: "Cancel job" }).click();
    await is(p, "cancelling");
    await is(p, "cancelled");
    await p.context().close();
  },

  async "a job that waits says why, runner by runner"() {
    const p = await page(mesh.hubs[0]);
    const job = await mesh.submit({ kind: "exec", argv: ["true"], require: { gpu: "yes" } });
    await p.goto(`${mesh.hubs[0].url}/jobs/${job.id}`);
    await p.locator("td", { hasText: "lacks the label gpu=yes" }).waitFor();
    await p.context().close();
  },

  async "a runner: slots, drain with a reason, resume"() {
    const p = await page(mesh.hubs[0]);
    await p.getByRole("link", { name: "Runners", exact: true }).click();
    await p.getByRole("link", { name: /studio/ }).click();
    await p.getByRole("button", { name: "Actions" }).click();
    await p.getByRole("menuitem", { name: "Automation slots" }).click();
    await p.getByRole("spinbutton").fill("3");
    await p.getByRole("dialog").getByRole("button", { name: "Automation slots" }).click();
    await see(p, /automation 0 of \d \(3 set\)/);
    await p.getByRole("button", { name: "Drain" }).click();
    await p.getByLabel("Reason, for the record").fill("new disk");
    await p.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
    await is(p, "draining");
    await see(p, "new disk");
    await p.getByRole("button", { name: "Resume" }).click();
    await p.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
    await is(p, "online");
    await p.context().close();
  },

  async "a circuit is opened by hand and reset, and the audit has it"() {
    const p = await page(mesh.hubs[0]);
    await p.goto(`${mesh.hubs[0].url}/circuits`);
    await p.getByRole("button", { name: "Open a circuit" }).click();
    const d = p.getByRole("dialog");
    await d.getByLabel("Runner").selectOption("studio");
    await d.getByLabel("Reason, for the record").fill("flaky network");
    await d.getByRole("button", { name: "Open a circuit" }).click();
    await p.locator("td", { hasText: "flaky network" }).waitFor();
    await p.getByRole("button", { name: "Reset" }).click();
    await p.getByRole("dialog").getByLabel("What was repaired").fill("cable");
    await p.getByRole("dialog").getByRole("button", { name: "Reset" }).click();
    await see(p, "No circuit is open");
    await p.goto(`${mesh.hubs[0].url}/audit?command=circuit.`);
    await until("two records", async () => (await p.locator("tbody tr").count()) >= 2);
    await p.context().close();
  },

  async "two tabs have one connection, and both are live"() {
    const streams = async () => Number(/^tugline_event_streams (\d+)/m.exec(await (await fetch(`${mesh.hubs[0].url}/metrics`, { headers: { Authorization: `Bearer ${mesh.token}` } })).text())?.[1]);
    await until("no stream is left of others", async () => (await streams()) === 0);
    const one = await page(mesh.hubs[0]);
    await see(one, "Live", { exact: true });
    const two = await one.context().newPage();
    await two.goto(`${mesh.hubs[0].url}/jobs`);
    await see(two, "Live", { exact: true });
    if ((await streams()) !== 1) throw new Error(`${await streams()} streams are open`);
    const job = await mesh.submit({ kind: "exec", argv: ["echo", "seen by both"] });
    await see(two, "seen by both");
    await one.goto(`${mesh.hubs[0].url}/jobs`);
    await see(one, "seen by both");
    await mesh.state(job.id, "succeeded");
    await one.context().close();
  },

  async "100 MiB of output open at once, at any place"() {
    const job = await mesh.submit({ kind: "exec", argv: ["sh", "-c", "echo the first line; yes 'the quick brown fox jumps over the lazy dog' | head -c 104857600; echo the last line"] });
    await mesh.state(job.id, "succeeded");
    await until("the output is at the hub", async () => (await mesh.ask(`/v1/jobs/${job.id}`)).log.sealed);
    const p = await page(mesh.hubs[0]);
    const begun = Date.now();
    await p.goto(`${mesh.hubs[0].url}/jobs/${job.id}/terminal`);
    await p.locator(".xterm-rows", { hasText: "the last line" }).waitFor();
    console.log(`    end shown after ${Date.now() - begun} ms`);
    await p.getByRole("button", { name: "Start" }).click();
    await p.locator(".xterm-rows", { hasText: "the first line" }).waitFor();
    await p.getByLabel("Position in the output").focus();
    await p.keyboard.press("PageUp");
    await until("another place", async () => Number(await p.locator(".term").getAttribute("data-from")) > 1 << 20);
    await p.locator(".xterm-rows", { hasText: "quick brown fox" }).waitFor();
    await (await p.context().newCDPSession(p)).send("HeapProfiler.collectGarbage"); // what counts is what is held
    const heap = await p.evaluate(() => performance.memory.usedJSHeapSize / 2 ** 20);
    console.log(`    ${Math.round(heap)} MiB of heap`);
    if (heap > 150) throw new Error(`${heap} MiB of heap for one pane of output`);
    await p.context().close();
  },

  async "1,000 runners and 50,000 jobs are listed without jank"() {
    const p = await page(mesh.hubs[0]);
    await many(p, mesh.hubs[0].url);
    await p.context().close();
  },

  async "axe has no serious finding on any page, in both themes"() {
    const jobs = (await mesh.ask("/v1/jobs?limit=100")).jobs;
    const agent = jobs.find((j) => j.kind === "agent")?.id;
    const runner = (await mesh.ask("/v1/runners")).runners[0].id;
    const found = [];
    for (const colorScheme of ["light", "dark"]) {
      const p = await page(mesh.hubs[0], { colorScheme, reducedMotion: "reduce" });
      const tabs = agent ? ["conversation", "activity", "terminal", "changes", "artifacts", "placement", "evidence", "attempts"].map((x) => `/jobs/${agent}/${x}`) : [];
      for (const path of ["/", "/jobs", ...tabs, "/jobs/new", "/runners", `/runners/${runner}`, "/circuits", "/cluster", "/audit", "/settings", "/nowhere"]) {
        await p.goto(mesh.hubs[0].url + path);
        await p.locator("main h1, main .empty").first().waitFor();
        await p.waitForFunction(() => !document.querySelector("main .loading"));
        await p.evaluate(axeText);
        const r = await p.evaluate(() => window.axe.run(document, { resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"] }));
        for (const v of r.violations) if (v.impact === "serious" || v.impact === "critical") found.push(`${colorScheme} ${path}: ${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.target} ${n.any[0]?.message ?? ""}`).join(" | ")}`);
      }
      await p.context().close();
    }
    if (found.length > 0) throw new Error(found.join("\n"));
  },

  async "every page fits from 360 px to 4K"() {
    const runner = (await mesh.ask("/v1/runners")).runners[0].id;
    const wide = [];
    for (const [width, height] of [[360, 740], [3840, 2160]]) {
      const p = await page(mesh.hubs[0], { viewport: { width, height } });
      for (const path of ["/", "/jobs", "/jobs/new", "/runners", `/runners/${runner}`, "/circuits", "/cluster", "/audit", "/settings"]) {
        await p.goto(mesh.hubs[0].url + path);
        await p.locator("main h1, main .empty").first().waitFor();
        const over = await p.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (over > 0) wide.push(`${path} at ${width}: ${over} px too wide`);
      }
      await p.context().close();
    }
    if (wide.length > 0) throw new Error(wide.join("\n"));
  },

  async "pictures of the pages in both themes"() {
    mkdirSync(shots, { recursive: true });
    const jobs = (await mesh.ask("/v1/jobs?limit=100")).jobs;
    const agent = jobs.find((j) => j.kind === "agent")?.id;
    const runner = (await mesh.ask("/v1/runners")).runners[0].id;
    for (const colorScheme of ["light", "dark"]) {
      const p = await page(mesh.hubs[0], { colorScheme, viewport: { width: 1280, height: 800 } });
      for (const [name, path] of Object.entries({ overview: "/", jobs: "/jobs", conversation: `/jobs/${agent}/conversation`, changes: `/jobs/${agent}/changes`, terminal: `/jobs/${agent}/terminal`, "new-job": "/jobs/new", runners: "/runners", runner: `/runners/${runner}`, cluster: "/cluster", settings: "/settings" })) {
        await p.goto(mesh.hubs[0].url + path);
        await p.locator("main h1").first().waitFor();
        await p.waitForFunction(() => !document.querySelector("main .loading"));
        await p.waitForTimeout(700);
        await p.screenshot({ path: `${shots}${name}-${colorScheme}.png` });
      }
      await p.context().close();
      const phone = await page(mesh.hubs[0], { colorScheme, viewport: { width: 360, height: 740 } });
      await phone.waitForTimeout(700);
      await phone.screenshot({ path: `${shots}phone-${colorScheme}.png` });
      await phone.context().close();
    }
  },

  async "the leader is killed while somebody watches"() {
    const leader = (await mesh.ask("/v1/status")).leader;
    const members = (await mesh.ask("/v1/members")).members;
    const first = mesh.hubs.find((h) => members.find((m) => m.id === leader).url === h.url);
    const other = mesh.hubs.find((h) => h !== first);
    const p = await page(other);
    const led = await page(first);
    await see(led, "Live", { exact: true });
    await p.goto(`${other.url}/jobs`);
    await see(p, "Live", { exact: true });
    mesh.kill(first);
    await led.getByRole("alert").getByText("stale since").waitFor();
    if ((await led.getByRole("alert").getByRole("link").count()) !== 2) throw new Error("the other nodes are not shown as links");
    await until("another leads", async () => {
      const s = await mesh.ask("/v1/status", {}, other);
      return s.leader && s.leader !== leader;
    });
    const job = await until("a job is taken", () => mesh.ask("/v1/jobs", { method: "POST", body: JSON.stringify({ kind: "exec", argv: ["echo", "after the leader"] }) }, other));
    await see(p, "after the leader");
    await p.goto(`${other.url}/jobs/${job.id}`);
    await is(p, "succeeded");
    await p.context().close();
    await led.context().close();
  },
};


let passed = 0;
let failed = 0;
try {
  await mesh.hub();
  for (let n = 0; n < 2; n++) await mesh.hub(mesh.tugline("hub", "ticket", "--role", "hub"));
  await until("three vote", async () => (await mesh.ask("/v1/members")).members.filter((m) => m.role === "voter").length === 3);
  await mesh.runner("studio");
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--enable-precise-memory-info"] });
  for (const [name, run] of Object.entries(scenarios)) {
    if (process.argv[2] && !name.includes(process.argv[2])) continue;
    if (name.startsWith("pictures") && process.env.SHOTS !== "update") continue; // they are for people to look at
    const begun = Date.now();
    const before = complaints.length;
    try {
      await run();
      if (complaints.length > before) throw new Error(`the browser complained: ${complaints.slice(before, before + 3).join("\n")}`);
      passed++;
      console.log(`ok   ${name} (${((Date.now() - begun) / 1000).toFixed(1)} s)`);
    } catch (e) {
      failed++;
      console.log(`FAIL ${name}\n     ${String(e.stack ?? e).slice(0, 2500)}\n     ${complaints.slice(before, before + 3).join("\n")}`);
      for (const [i, c] of browser.contexts().entries()) for (const p of c.pages()) await p.screenshot({ path: `${mesh.dir}-failed-${failed}-${i}.png` }).catch(() => {});
      for (const c of browser.contexts()) await c.close();
    }
  }
} catch (e) {
  failed++;
  console.log(String(e.stack ?? e), mesh.logs());
} finally {
  await browser?.close();
  await mesh.stop();
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed > 0 || passed === 0 ? 1 : 0);
