import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useMemo, useState } from "react";
import { Menu, MenuItem, MenuTrigger, Popover } from "react-aria-components";
import { Link, useNavigate, useParams } from "react-router";
import { ask, HubError, hub } from "../api/client";
import { pages, q, type Runner } from "../api/queries";
import { bytes, span } from "../lib/format";
import { standing, tight } from "../lib/fleet";
import { series } from "../lib/series";
import { may, session } from "../lib/session";
import { useStore } from "../lib/store";
import { t } from "../text/en";
import { Icon } from "../ui/icons";
import { Button, ButtonLink, Confirm, Empty, Facts, Failure, Field, Id, Loading, Meter, PageHead, Panel, Places } from "../ui/kit";
import { State } from "../ui/state";
import { Age, Clock, Until } from "../ui/time";
import { CircuitTable } from "./Circuits";
import { JobLines } from "./Overview";

const Chart = lazy(() => import("../ui/Chart"));

const percent = (v: number) => `${Math.round(v * 100)} %`;
const plain = (v: number) => v.toFixed(v < 10 ? 2 : 1);

export default function RunnerPage() {
  const { id = "" } = useParams();
  const runner = useQuery(q.runner(id));
  const circuits = useQuery(q.circuits(false));
  const alerts = useQuery(q.alerts(id));
  const active = useInfiniteQuery(q.jobs({ runner: id, active: true, limit: 50 }));
  const recent = useInfiniteQuery(q.jobs({ runner: id, limit: 50 }));
  if (runner.error && !runner.data) {
    if (runner.error instanceof HubError && runner.error.status === 404)
      return <Empty title={t.runner.gone} action={<ButtonLink to="/runners">{t.runner.toList}</ButtonLink>} />;
    return <Failure error={runner.error} again={() => void runner.refetch()} />;
  }
  if (!runner.data) return <Loading rows={6} />;
  const r = runner.data;
  const s = r.health.sample;
  const own = (circuits.data ?? []).filter((c) => c.runner === r.id || (c.runners as string[] | null | undefined)?.includes(r.id));
  const faults = (r.health.faults ?? []).filter((f) => f.kind !== "offline");
  return (
    <>
      <Head runner={r} />
      {r.conflict && <p className="notice tone-bad"><Icon name="bad" /> {t.runner.conflict} {r.conflict}</p>}
      {r.declining && <p className="notice tone-warn"><Icon name="warn" /> {t.runner.declining} {r.declining}</p>}
      {faults.map((f) => <p className="notice tone-bad" key={f.kind}><Icon name="bad" /> {f.detail || f.kind} <Age at={f.since} /></p>)}
      <div className="grid">
        <Panel title={t.runner.about}>
          <Facts
            items={[
              [t.runner.slots, <><Places key="p" used={r.slots.used} offered={r.slots.base_offered + r.slots.effective} of={r.slots.base + r.slots.automation} label={t.runners.slots(r.slots.used, r.slots.base_offered + r.slots.effective, r.slots.base + r.slots.automation)} /> {t.runner.slotsOf(r.slots.used - r.slots.used_automation, r.slots.base_offered, r.slots.base, r.slots.used_automation, r.slots.effective, r.slots.automation)}</>],
              [t.runner.limited, r.slots.limited_by?.join("; ")],
              [t.runner.system, `${r.os}/${r.arch}`],
              [t.runner.version, <>{r.version} <span className="tag" key="r">{r.ring}</span></>],
              [t.runner.update, r.update && [r.update.to ?? r.update.offered, r.update.state, r.update.waits, r.update.why].filter(Boolean).join(" · ")],
              [t.runner.permissions, r.permissions],
              [t.runner.labels, Object.keys(r.labels).length > 0 && <span className="tags">{Object.entries(r.labels).map(([k, v]) => <span className="tag" key={k}>{k}={v}</span>)}</span>],
              [t.runner.heard, <Age key="h" at={r.last_heartbeat} ago />],
              [t.runner.enrolled, <Clock key="e" at={r.enrolled_at} />],
              [t.runner.address, [r.address, r.transport].filter(Boolean).join(" · ")],
            ]}
          />
        </Panel>
        <Panel title={t.runner.machine} more={s && <span>{t.runner.sample} {span(r.health.age_ms ?? 0)}</span>}>
          {!s ? (
            <Empty title={t.runner.noSample} />
          ) : (
            <Facts
              items={[
                [t.runner.disk, s.workspace.known && <Gauge key="d" free={s.workspace.free ?? 0} total={s.workspace.total ?? 0} tone={tight(s.workspace)} />],
                [t.runner.cache, s.cache.known && s.cache.path !== s.workspace.path && s.cache.total !== s.workspace.total && <Gauge key="c" free={s.cache.free ?? 0} total={s.cache.total ?? 0} tone={tight(s.cache)} />],
                [t.runner.memory, s.memory && <Gauge key="m" free={s.memory.available ?? 0} total={s.memory.total} />],
                [t.runner.cpu, s.cpu && `${percent(s.cpu.used)} · ${t.runner.load} ${plain(s.cpu.load)} · ${t.runner.cores(s.cpu.count)}`],
                [t.runner.docker, <State key="s" state={s.docker.state} why={s.docker.detail} compact />],
                [t.runner.power, s.power && `${s.power.percent} % ${s.power.on_battery ? t.runner.battery : t.runner.mains}`],
                [t.runner.uptime, s.uptime_ns && span(s.uptime_ns / 1e6)],
                [t.runner.usage, s.usage?.length ? s.usage.map((u) => `${u.class} ${bytes(u.bytes)}`).join(", ") : undefined],
              ]}
            />
          )}
        </Panel>
      </div>
      <Panel title={t.runner.harnesses} flush>
        <div className="table-scroll">
          <table>
            <thead><tr><th>{t.runner.harness}</th><th>{t.runner.version}</th><th>{t.runner.signedIn}</th><th>{t.runner.models}</th></tr></thead>
            <tbody>
              {(r.harnesses ?? []).map((h) => (
                <tr key={h.name}>
                  <td className="strong">{h.name}</td>
                  <td>{h.version ?? <span className="quiet">–</span>}</td>
                  <td>{h.name === "exec" ? <span className="quiet">–</span> : <State state={h.signed_in === "yes" ? "ok" : h.signed_in === "no" ? "faulty" : "unknown"} why={[h.account, h.detail].filter(Boolean).join(" · ")} compact />}</td>
                  <td className="wrap">{h.models?.join(", ") || <span className="quiet">–</span>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Panel>
      <Charts id={id} />
      <div className="grid">
        <Panel title={t.runner.now} flush><JobLines jobs={active.data?.pages[0]?.jobs ?? []} none={t.runner.idle} /></Panel>
        <Panel title={t.runner.recent} more={<Link to={`/jobs?runner=${encodeURIComponent(r.name)}`}>{t.overview.all}</Link>} flush><JobLines jobs={(recent.data?.pages[0]?.jobs ?? []).filter((j) => j.finished).slice(0, 8)} none={t.overview.nothingEnded} /></Panel>
      </div>
      <Panel title={t.runner.circuits} flush>{own.length === 0 ? <div className="panel-body quiet">{t.runner.noCircuits}</div> : <CircuitTable circuits={own} />}</Panel>
      <div className="grid">
        <Sessions id={id} />
        <Panel title={t.runner.events} flush>
          <ul className="lines">
            {(alerts.data ?? []).slice(0, 12).map((a) => (
              <li key={a.id}><State state={t.alertTone(a.kind)} compact /><span className="grow">{a.text}</span><span className="end"><Age at={a.at} ago /></span></li>
            ))}
            {(r.health.record?.changes ?? []).slice(-12).reverse().map((c) => (
              <li key={`${c.at}${c.kind}`}><State state={c.on ? "faulty" : "recovered"} compact /><span className="grow">{c.kind} {c.text}</span><span className="end"><Age at={c.at} ago /></span></li>
            ))}
          </ul>
          {!alerts.data?.length && !r.health.record?.changes?.length && <div className="panel-body quiet">{t.runner.noEvents}</div>}
        </Panel>
      </div>
    </>
  );
}

function Gauge({ free, total, tone }: { free: number; total: number; tone?: "ok" | "warn" | "bad" }) {
  const text = t.runner.freeOf(bytes(free), bytes(total));
  return (
    <>
      <span className={tone === "bad" ? "bad-text" : tone === "warn" ? "warn-text" : undefined}>{text}</span>
      <Meter value={total - free} of={total} label={text} tone={tone === "ok" ? undefined : tone} />
    </>
  );
}

function Charts({ id }: { id: string }) {
  const [window, setWindow] = useState<"1h" | "24h">("1h");
  const h = useQuery(q.health(id, window));
  const s = useMemo(() => series(h.data?.points ?? []), [h.data]);
  return (
    <Panel
      title={t.charts.title}
      more={
        <span className="chips" role="group" aria-label={t.charts.window}>
          {(["1h", "24h"] as const).map((w) => <button key={w} type="button" className="chip" aria-pressed={window === w} onClick={() => setWindow(w)}>{t.charts.windows[w]}</button>)}
        </span>
      }
    >
      {h.error && !h.data ? (
        <Failure error={h.error} />
      ) : !h.data ? (
        <Loading />
      ) : s.times.length < 2 ? (
        <Empty title={t.charts.few} />
      ) : (
        <Suspense fallback={<Loading />}>
          <div className="charts">
            <Chart title={t.charts.cpu} times={s.times} values={s.of.cpu} format={percent} top={1} />
            <Chart title={t.charts.load} times={s.times} values={s.of.load} format={plain} />
            <Chart title={t.charts.memory} times={s.times} values={s.of.memory} format={bytes} />
            <Chart title={t.charts.free} times={s.times} values={s.of.free} format={bytes} />
          </div>
        </Suspense>
      )}
    </Panel>
  );
}

function Sessions({ id }: { id: string }) {
  const who = useStore(session);
  const allowed = may(who, "operator");
  const list = useQuery({ ...q.sessions(id), enabled: allowed });
  const [open, setOpen] = useState<string>();
  return (
    <Panel title={t.sessions.title} more={list.data && <span>{list.data.waiting ? t.sessions.waiting : `${t.runner.sample} ${span(list.data.age_ms)}`}</span>} flush>
      {!allowed ? (
        <div className="panel-body quiet">{t.sessions.operator}</div>
      ) : list.error ? (
        <Failure error={list.error} again={() => void list.refetch()} />
      ) : !list.data ? (
        <Loading />
      ) : !list.data.sessions?.length ? (
        <div className="panel-body quiet">{list.data.notes?.join(" ") || t.sessions.none}</div>
      ) : (
        <ul className="lines">
          {list.data.sessions.slice(0, 30).map((x) => (
            <li key={x.id}>
              <span className="tag">{x.harness}</span>
              <span className="grow">
                <button type="button" className="sort" aria-expanded={open === x.id} onClick={() => setOpen(open === x.id ? undefined : x.id)}>{x.title || x.dir}</button>
                <small className="quiet">{x.dir}</small>
                {open === x.id && <Messages runner={id} sid={x.id} />}
              </span>
              <span className="end"><Age at={x.used ?? x.started} ago /></span>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function Messages({ runner, sid }: { runner: string; sid: string }) {
  const s = useQuery({ queryKey: ["session", runner, sid], queryFn: () => ask(hub.GET("/v1/runners/{id}/sessions/{sid}", { params: { path: { id: runner, sid }, query: {} } })) });
  if (s.error) return <Failure error={s.error} />;
  if (!s.data) return <Loading />;
  return (
    <div className="stack">
      {s.data.messages?.map((m, i) => <pre className="out" key={i}><strong>{m.role}</strong>{"\n"}{m.text}</pre>)}
      <span className="quiet">{t.sessions.resume} <code>tugline session resume {runner} {sid} "…"</code></span>
    </div>
  );
}

type Act = "slots" | "cordon" | "drain" | "resume" | "update" | "ring" | "revoke" | "trust" | "remove";

function Head({ runner: r }: { runner: Runner }) {
  const who = useStore(session);
  const navigate = useNavigate();
  const [act, setAct] = useState<Act>();
  const [f, setF] = useState({ n: String(r.slots.automation), reason: "", for: "", deadline: "", then: "finish", version: "", ring: r.ring, typed: "", abandon: false });
  const operator = may(who, "operator");
  const admin = may(who, "admin");
  const params = { path: { id: r.id } };
  const opt = <K extends string>(k: K, v: string) => (v.trim() ? ({ [k]: v.trim() } as Record<K, string>) : {});
  const done = () => Promise.all([pages.invalidateQueries({ queryKey: ["runner"] }), pages.invalidateQueries({ queryKey: ["runners"] })]);
  const acts: Record<Act, () => Promise<unknown>> = {
    slots: () => ask(hub.POST("/v1/runners/{id}/slots", { params, body: { automation: Number(f.n) } })),
    cordon: () => ask(hub.POST("/v1/runners/{id}/cordon", { params, body: { ...opt("reason", f.reason), ...opt("for", f.for) } })),
    drain: () => ask(hub.POST("/v1/runners/{id}/drain", { params, body: { ...opt("reason", f.reason), ...opt("for", f.for), ...opt("deadline", f.deadline), ...(f.deadline.trim() ? { then: f.then as "finish" | "cancel" } : {}) } })),
    resume: () => ask(hub.POST("/v1/runners/{id}/resume", { params })),
    update: () => ask(hub.POST("/v1/runners/{id}/update", { params, body: opt("version", f.version) })),
    ring: () => ask(hub.POST("/v1/runners/{id}/ring", { params, body: { ring: f.ring } })),
    revoke: () => ask(hub.POST("/v1/runners/{id}/revoke", { params })),
    trust: () => ask(hub.POST("/v1/runners/{id}/trust", { params })),
    remove: async () => {
      await ask(hub.DELETE("/v1/runners/{id}", { params: { ...params, query: f.abandon ? { abandon_jobs: true } : {} } }));
      void navigate("/runners");
    },
  };
  const field = (k: "reason" | "for" | "deadline" | "version" | "n" | "typed", label: string, hint?: string, holder?: string) => (
    <Field label={label} hint={hint}>
      {(id, about) => <input id={id} aria-describedby={about} type={k === "n" ? "number" : "text"} min={k === "n" ? 0 : undefined} max={k === "n" ? 8 : undefined} value={f[k]} placeholder={holder} onChange={(e) => setF({ ...f, [k]: e.target.value })} />}
    </Field>
  );
  const dialogs: [Act, string, string, boolean][] = [
    ["slots", t.acts.slotsText, t.acts.slots, false],
    ["cordon", t.acts.cordonText, t.acts.cordon, false],
    ["drain", t.acts.drainText, t.acts.drain, f.then === "cancel"],
    ["resume", t.acts.resumeText, t.acts.resume, false],
    ["update", t.acts.updateText, t.acts.update, false],
    ["ring", t.acts.ringText, t.acts.ring, false],
    ["trust", t.acts.trustText, t.acts.trust, false],
    ["revoke", t.acts.revokeText, t.acts.revoke, true],
    ["remove", t.acts.removeText, t.acts.remove, true],
  ];
  const more: Act[] = [...(operator && !r.hold ? (["cordon"] as const) : []), ...(admin ? (["slots", "update", "ring", ...(r.conflict ? (["trust"] as const) : []), "revoke", "remove"] as const) : [])];
  return (
    <>
      <PageHead
        crumb={<Link to="/runners">{t.nav.runners}</Link>}
        title={r.name}
        sub={
          <>
            <State state={standing(r)} since={r.hold && r.state === "online" ? r.hold.since : r.last_heartbeat} why={r.hold?.reason} />
            {r.hold && <span>{r.hold.reason} {r.hold.actor_name && t.job.by(r.hold.actor_name)} {r.hold.until && <Until at={r.hold.until} />}</span>}
            <Id id={r.id} />
          </>
        }
        actions={
          operator && (
            <>
              {r.hold ? <Button look="primary" onPress={() => setAct("resume")}>{t.acts.resume}</Button> : <Button onPress={() => setAct("drain")}>{t.acts.drain}</Button>}
              <ButtonLink to={`/jobs/new?on=${encodeURIComponent(r.name)}`}>{t.runner.job}</ButtonLink>
              {more.length > 0 && (
                <MenuTrigger>
                  <Button>{t.acts.more} <Icon name="down" /></Button>
                  <Popover>
                    <Menu className="menu" aria-label={t.acts.more} onAction={(k) => setAct(k as Act)}>
                      {more.map((k) => <MenuItem key={k} id={k} className={`menu-item${k === "remove" || k === "revoke" ? " danger" : ""}`}>{t.acts[k]}</MenuItem>)}
                    </Menu>
                  </Popover>
                </MenuTrigger>
              )}
            </>
          )
        }
      />
      {dialogs.map(([k, text, action, danger]) => (
        <Confirm
          key={k}
          title={`${action}: ${r.name}`}
          text={text}
          action={action}
          danger={danger}
          open={act === k}
          onClose={() => setAct(undefined)}
          ready={k !== "remove" || f.typed === r.name}
          run={async () => {
            await acts[k]();
            await done();
          }}
        >
          {k === "slots" && field("n", t.acts.automation, t.acts.automationHint)}
          {(k === "cordon" || k === "drain") && field("reason", t.job.reason)}
          {(k === "cordon" || k === "drain") && field("for", t.acts.for, t.acts.forHint, "2h")}
          {k === "drain" && field("deadline", t.acts.deadline, t.acts.deadlineHint, "30m")}
          {k === "drain" && f.deadline.trim() && (
            <Field label={t.acts.then}>
              {(id) => (
                <select id={id} value={f.then} onChange={(e) => setF({ ...f, then: e.target.value })}>
                  <option value="finish">{t.acts.thenFinish}</option>
                  <option value="cancel">{t.acts.thenCancel}</option>
                </select>
              )}
            </Field>
          )}
          {k === "update" && field("version", t.acts.version, t.acts.versionHint)}
          {k === "ring" && (
            <Field label={t.acts.ring}>
              {(id) => <select id={id} value={f.ring} onChange={(e) => setF({ ...f, ring: e.target.value })}>{["canary", "early", "all"].map((x) => <option key={x}>{x}</option>)}</select>}
            </Field>
          )}
          {k === "remove" && (
            <>
              {field("typed", t.acts.typed(r.name))}
              <label className="check"><input type="checkbox" checked={f.abandon} onChange={(e) => setF({ ...f, abandon: e.target.checked })} /> {t.acts.abandon}</label>
            </>
          )}
        </Confirm>
      ))}
    </>
  );
}
