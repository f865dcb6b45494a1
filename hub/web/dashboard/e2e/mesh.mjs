// A mesh of real processes for the browser: three hubs, one runner, all on loopback.
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const here = new URL(".", import.meta.url).pathname;
const program = join(here, "../../../../bin/tugline");

export const sleep = (ms) => new Promise((r) => setTimeout(r, ms));

/** until waits for something to be so; what is waited for decides, not how long it takes. */
export async function until(what, f, ms = 120_000) {
  const end = Date.now() + ms;
  for (;;) {
    const v = await f().catch(() => undefined);
    if (v) return v;
    if (Date.now() > end) throw new Error(`waited in vain: ${what}`);
    await sleep(200);
  }
}

async function freePort() {
  return new Promise((resolve) => {
    const s = createServer().listen(0, "127.0.0.1", () => {
      const { port } = s.address();
      s.close(() => resolve(port));
    });
  });
}

export class Mesh {
  dir = mkdtempSync(join(tmpdir(), "tugline-page-"));
  hubs = [];
  runners = [];

  start(args, log, env = {}) {
    const home = join(this.dir, "home");
    mkdirSync(home, { recursive: true });
    const p = spawn(program, args, { cwd: this.dir, env: { ...process.env, HOME: home, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    let out = "";
    p.stdout.on("data", (b) => (out += b));
    p.stderr.on("data", (b) => (out += b));
    p.log = () => `${log}:\n${out.slice(-4000)}`;
    return p;
  }

  async hub(ticket) {
    const n = this.hubs.length + 1;
    const [port, mesh] = [await freePort(), await freePort()];
    const data = join(this.dir, `hub${n}`);
    const h = { n, data, url: `http://127.0.0.1:${port}` };
    h.args = ["hub", "run", "--data-dir", data, "--listen", `127.0.0.1:${port}`, "--mesh-listen", `127.0.0.1:${mesh}`];
    h.process = this.start([...h.args, ...(ticket ? [] : ["--bootstrap"])], `hub ${n}`, ticket ? { TUGLINE_TICKET: ticket } : {});
    this.hubs.push(h);
    await until(`hub ${n}`, async () => (await fetch(`${h.url}/readyz`)).ok);
    if (!ticket) this.token = readFileSync(join(data, "operator.token"), "utf8").trim();
    return h;
  }

  tugline(...args) {
    return execFileSync(program, args, { cwd: this.dir, encoding: "utf8", env: { ...process.env, HOME: join(this.dir, "home"), TUGLINE_HUB: this.hubs[0].url, TUGLINE_TOKEN: this.token } }).trim();
  }

  async runner(name) {
    const data = join(this.dir, name);
    mkdirSync(data, { recursive: true });
    writeFileSync(join(data, "runner.yaml"), `slots: 2\nallow_file: true\nharnesses: {exec: {}, codex: {path: ${join(here, "codex.sh")}}}\n`, { mode: 0o600 });
    const ticket = this.tugline("hub", "ticket");
    this.runners.push(this.start(["runner", "run", "--data-dir", data, "--name", name], name, { TUGLINE_TICKET: ticket, CODEX_HOME: join(this.dir, "codex"), CODEX_API_KEY: "sk-0123456789" }));
    await until(`runner ${name}`, async () => ((await this.ask("/v1/runners")).runners ?? []).some((r) => r.name === name && r.state === "online"));
  }

  async ask(path, init = {}, hub = this.hubs.find((h) => h.process.exitCode === null && !h.killed)) {
    const r = await fetch(hub.url + path, { ...init, headers: { Authorization: `Bearer ${this.token}`, "Content-Type": "application/json", ...init.headers } });
    if (!r.ok) throw new Error(`${path}: ${r.status} ${await r.text()}`);
    return r.status === 204 ? undefined : r.json();
  }

  submit(body) {
    return this.ask("/v1/jobs", { method: "POST", body: JSON.stringify(body) });
  }

  state(id, ...states) {
    return until(`${id} is ${states}`, async () => {
      const j = await this.ask(`/v1/jobs/${id}`);
      return states.includes(j.state) && j;
    });
  }

  repository() {
    const dir = join(this.dir, "repo");
    if (existsSync(dir)) return `file://${dir}`;
    mkdirSync(dir);
    const git = (...a) => execFileSync("git", ["-C", dir, "-c", "user.name=T", "-c", "user.email=t@example.org", ...a]);
    git("init", "-q", "-b", "main");
    writeFileSync(join(dir, "main.go"), 'package main\n\nfunc main() {\n\tprintln("hello")\n}\n');
    writeFileSync(join(dir, "README.md"), "# Demo\n\nA small thing.\n");
    git("add", "-A");
    git("commit", "-q", "-m", "first");
    return `file://${dir}`;
  }

  kill(h) {
    h.killed = true;
    h.process.kill("SIGKILL");
  }

  async stop() {
    const all = [...this.runners, ...this.hubs.map((h) => h.process)].filter((p) => p.exitCode === null && p.signalCode === null);
    const gone = all.map((p) => new Promise((r) => p.once("exit", r)));
    for (const p of all) p.kill("SIGTERM");
    await Promise.race([Promise.all(gone), sleep(20_000)]);
    for (const p of all) p.kill("SIGKILL");
    rmSync(this.dir, { recursive: true, force: true, maxRetries: 5, retryDelay: 500 });
  }

  logs() {
    return [...this.hubs.map((h) => h.process), ...this.runners].map((p) => p.log()).join("\n");
  }
}
