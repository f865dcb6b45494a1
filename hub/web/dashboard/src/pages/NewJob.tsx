import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { useNavigate, useSearchParams } from "react-router";
import { ask, HubError, hub, once, type Schemas } from "../api/client";
import { q } from "../api/queries";
import { standing } from "../lib/fleet";
import { blank, eligible, like, submission, type Draft } from "../lib/draft";
import { useSettled } from "../lib/url";
import { t } from "../text/en";
import { Icon } from "../ui/icons";
import { Button, Empty, Failure, Field, Loading, PageHead, Panel } from "../ui/kit";
import { Until } from "../ui/time";

export default function NewJob() {
  const [params] = useSearchParams();
  const from = params.get("like") ?? "";
  const old = useQuery({ ...q.job(from), enabled: Boolean(from) });
  const asked = Boolean(old.data?.turns?.[0]?.prompt);
  const prompt = useQuery({ ...q.prompt(from, 1), enabled: asked });
  if (from && (old.isPending || (asked && prompt.isPending))) return <Loading rows={6} />;
  const first = old.data ? like(old.data, prompt.data ?? "") : { ...blank, on: params.get("on") ?? "" };
  return <Composer key={from} first={first} />;
}

function Composer({ first }: { first: Draft }) {
  const navigate = useNavigate();
  const runners = useQuery(q.runners());
  const [d, setDraft] = useState(first);
  const [tried, setTried] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  // A request whose end is unknown is repeated under the same key as long as it asks for the same.
  const key = useRef({ body: "", header: once() });
  const status = useQuery(q.status());
  const standard = status.data?.settings.default_harness ?? "";
  const { body, wrong } = useMemo(() => submission(d), [d]);
  const agents = useMemo(() => eligible(runners.data ?? []), [runners.data]);
  // Where the hub has no default, the first agent that could be had stands there to be changed.
  const only = status.data && !standard && d.kind === "agent" && d.harness === "" ? agents.keys().next().value : undefined;
  useEffect(() => {
    if (only) setDraft((was) => ({ ...was, harness: only }));
  }, [only]);
  const set = <K extends keyof Draft>(k: K, v: Draft[K]) => setDraft((was) => ({ ...was, [k]: v }));
  const says = (k: keyof Draft) => (wrong[k] && (tried || wrong[k] !== "empty") ? t.compose.wrong[wrong[k]] : undefined);

  const send = async () => {
    setTried(true);
    if (Object.keys(wrong).length > 0 || busy) return;
    setBusy(true);
    setError(undefined);
    const text = JSON.stringify(body);
    if (key.current.body !== text) key.current = { body: text, header: once() };
    try {
      const job = await ask(hub.POST("/v1/jobs", { params: { header: key.current.header }, body }));
      void navigate(`/jobs/${job.id}`);
    } catch (e) {
      setError(e);
      setBusy(false);
    }
  };

  useEffect(() => {
    const press = (e: KeyboardEvent) => {
      if (e.key === "Enter" && (e.metaKey || e.ctrlKey)) {
        e.preventDefault();
        document.getElementById("submit-job")?.click();
      }
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, []);

  const text = (k: "repo" | "ref" | "model" | "disk" | "memory" | "labels" | "env" | "timeout" | "push" | "priority", label: string, hint?: string, holder?: string, list?: string) => (
    <Field label={label} hint={hint} error={says(k)}>
      {(id, about) => <input id={id} aria-describedby={about} aria-invalid={Boolean(says(k))} type="text" value={d[k]} onChange={(e) => set(k, e.target.value)} placeholder={holder} list={list} spellCheck={false} autoComplete="off" />}
    </Field>
  );
  const pick = (k: "os" | "arch" | "permissions" | "on" | "harness", label: string, options: [string, string][], hint?: string) => (
    <Field label={label} hint={hint}>
      {(id, about) => (
        <select id={id} aria-describedby={about} value={d[k]} onChange={(e) => set(k, e.target.value)}>
          {options.map(([v, name]) => <option key={v} value={v}>{name}</option>)}
        </select>
      )}
    </Field>
  );

  return (
    <>
      <PageHead title={t.compose.title} />
      <form
        className="compose"
        onSubmit={(e) => {
          e.preventDefault();
          void send();
        }}
      >
        <Panel>
          <div className="stack">
            <div className="segment" role="radiogroup" aria-label={t.compose.kind}>
              {(["agent", "exec"] as const).map((k) => (
                <label key={k}>
                  <input type="radio" name="kind" checked={d.kind === k} onChange={() => set("kind", k)} />
                  {t.compose.kinds[k]}
                </label>
              ))}
            </div>
            {d.kind === "agent" ? (
              <Field label={t.compose.prompt} error={says("prompt")}>
                {(id, about) => <textarea id={id} aria-describedby={about} aria-invalid={Boolean(says("prompt"))} rows={8} value={d.prompt} onChange={(e) => set("prompt", e.target.value)} placeholder={t.compose.promptHolder} />}
              </Field>
            ) : (
              <>
                <Field label={t.compose.command} error={says("command")} hint={d.shell ? t.compose.commandShell : t.compose.commandWords}>
                  {(id, about) => <textarea id={id} className="mono" aria-describedby={about} aria-invalid={Boolean(says("command"))} rows={d.shell ? 5 : 2} value={d.command} onChange={(e) => set("command", e.target.value)} placeholder="make test" spellCheck={false} />}
                </Field>
                <label className="check"><input type="checkbox" checked={d.shell} onChange={(e) => set("shell", e.target.checked)} /> {t.compose.shell}</label>
              </>
            )}
            <div className="fields">
              {text("repo", t.compose.repo, t.compose.repoHint, "https://… or git@…")}
              {text("ref", t.compose.ref, t.compose.refHint, "HEAD")}
            </div>
            {d.kind === "agent" && (
              <div className="fields">
                {pick("harness", t.compose.harness, [["", t.compose.harnessDefault(standard)], ...[...agents.keys()].map((h): [string, string] => [h, h])], agents.size === 0 ? t.compose.noHarness : undefined)}
                {text("model", t.compose.model, t.compose.modelHint, undefined, "models")}
                <datalist id="models">{(agents.get(d.harness) ?? [...agents.values()].flat()).map((m) => <option key={m} value={m} />)}</datalist>
                {pick("permissions", t.compose.permissions, [["read", t.compose.perms.read], ["workspace", t.compose.perms.workspace], ["full", t.compose.perms.full]])}
              </div>
            )}
            <div className="fields">
              {pick("on", t.compose.on, [["", t.compose.auto], ...(runners.data ?? []).map((r): [string, string] => [r.name, `${r.name} (${t.states[standing(r) as keyof typeof t.states] ?? r.state})`])])}
            </div>
            <details open={Boolean(d.os || d.arch || d.docker || d.disk || d.memory || d.labels)}>
              <summary>{t.compose.needs}</summary>
              <div className="fields">
                {pick("os", t.compose.os, [["", t.compose.any], ["linux", "linux"], ["darwin", "macOS"]])}
                {pick("arch", t.compose.arch, [["", t.compose.any], ["amd64", "amd64"], ["arm64", "arm64"]])}
                {text("disk", t.compose.disk, undefined, "20GiB")}
                {text("memory", t.compose.memory, undefined, "8GiB")}
                {text("labels", t.compose.labels, t.compose.labelsHint, "gpu=yes")}
                <label className="check"><input type="checkbox" checked={d.docker} onChange={(e) => set("docker", e.target.checked)} /> {t.compose.docker}</label>
              </div>
            </details>
            <details open={Boolean(d.env || d.timeout || d.push || d.priority)}>
              <summary>{t.compose.more}</summary>
              <div className="fields">
                {text("push", t.compose.push, t.compose.pushHint)}
                {text("timeout", t.compose.timeout, undefined, "2h")}
                {text("priority", t.compose.priority, t.compose.priorityHint, "0")}
                {text("env", t.compose.env, t.compose.envHint, "CI=true")}
              </div>
            </details>
          </div>
        </Panel>
        <div className="aside">
          <Preview body={body} />
          {error !== undefined && <Failure error={error} />}
          <Button look="primary" type="submit" id="submit-job" isDisabled={busy}>{busy ? t.working : t.compose.send} <kbd>{t.compose.keys}</kbd></Button>
        </div>
      </form>
    </>
  );
}

/** Preview asks the hub, while a job is written, who could take it and why others can't. */
function Preview({ body }: { body: Schemas["Submit"] }) {
  // What is asked of the agent makes no difference to who can take it.
  const text = useSettled(JSON.stringify({ ...body, prompt: undefined }), 300);
  const p = useQuery({
    queryKey: ["preview", text],
    queryFn: async () => {
      const { data, error, response } = await hub.POST("/v1/jobs:preview", { body: JSON.parse(text) as Schemas["Submit"] });
      if (!data) throw new HubError(response.status, error?.code ?? "", error?.detail ?? t.errors.status(response.status), error?.instance);
      return data;
    },
    placeholderData: (was) => was,
    refetchInterval: 10_000,
    retry: false,
  });
  const e = p.data?.explanation;
  const list = e?.runners ?? [];
  const can = list.filter((r) => !r.code);
  const not = list.filter((r) => r.code);
  return (
    <Panel title={t.preview.title} more={e && !p.error && <span className={`badge${can.length === 0 ? " warn" : ""}`}>{t.preview.count(can.length, list.length + (e.more ?? 0))}</span>} flush>
      {p.error ? (
        <p className="panel-body"><span className="notice tone-warn"><Icon name="warn" /> {p.error.message}</span></p>
      ) : !e ? (
        <Loading />
      ) : list.length === 0 ? (
        <Empty title={t.overview.noRunners}><code>tugline hub ticket</code></Empty>
      ) : (
        <>
          <p className="panel-body" role="status">{can.length > 0 ? t.preview.could(p.data?.harness ?? "", can.length) : e.summary}</p>
          <ul className="lines">
            {[...can, ...not].slice(0, 50).map((r) => (
              <li key={r.runner}>
                <span className={`state compact tone-${r.code ? "quiet" : "ok"}`}><Icon name={r.code ? "off" : "ok"} label={r.code ? t.preview.cannot : t.preview.can} /></span>
                <span className="grow">
                  <strong>{r.runner}</strong> {r.code && r.detail}
                  {r.code && r.change && <small className="quiet">{r.change}</small>}
                </span>
                {r.until && <span className="end"><Until at={r.until} /></span>}
              </li>
            ))}
          </ul>
          {e.notes?.map((n) => <p className="panel-body quiet" key={n}>{n}</p>)}
        </>
      )}
    </Panel>
  );
}
