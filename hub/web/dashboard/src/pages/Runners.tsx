import { useQuery } from "@tanstack/react-query";
import { memo, useCallback, useDeferredValue, useMemo } from "react";
import { Link } from "react-router";
import { q, type Runner } from "../api/queries";
import { arranged, orders } from "../lib/arranged";
import { bytes } from "../lib/format";
import { standing, tight } from "../lib/fleet";
import { useNarrow } from "../lib/narrow";
import { useParam } from "../lib/url";
import { t } from "../text/en";
import { Icon } from "../ui/icons";
import { Button, Empty, Failure, Loading, PageHead, Panel, Places } from "../ui/kit";
import { State } from "../ui/state";
import { Age } from "../ui/time";
import { VList } from "../ui/vlist";

const states = ["", "online", "stale", "offline", "cordoned", "draining", "refused", "revoked", "unknown"] as const;

export default function Runners() {
  const runners = useQuery(q.runners());
  const [search, setSearch] = useParam("q");
  const [state, setState] = useParam("state");
  const [sort, setSort] = useParam("sort", "name");
  const narrow = useNarrow();
  const wanted = useDeferredValue(search);
  const shown = useMemo(() => arranged([...(runners.data ?? [])], wanted, state, sort), [runners.data, wanted, state, sort]);
  const counts = useMemo(() => {
    const c: Record<string, number> = {};
    for (const r of runners.data ?? []) c[standing(r)] = (c[standing(r)] ?? 0) + 1;
    return c;
  }, [runners.data]);
  const row = useCallback((r: Runner) => <RunnerRow runner={r} />, []);
  const head = (key: string, name: string, className?: string) => {
    const on = sort.replace(/^-/, "") === key;
    return (
      <span className={className}>
        <button type="button" className="sort" aria-pressed={on} onClick={() => setSort(sort === key ? `-${key}` : key)}>
          {name} {on && <Icon name={sort.startsWith("-") ? "up" : "down"} label={sort.startsWith("-") ? t.runners.reversed : t.runners.sorted} />}
        </button>
      </span>
    );
  };
  if (runners.error && !runners.data) return <Failure error={runners.error} again={() => void runners.refetch()} />;
  if (!runners.data) return <Loading rows={8} />;
  return (
    <>
      <PageHead title={t.runners.title} />
      <div className="filters">
        <div className="search">
          <Icon name="search" />
          <input type="search" value={search} onChange={(e) => setSearch(e.target.value)} placeholder={t.runners.search} aria-label={t.runners.search} />
        </div>
        {narrow && (
          <select value={sort} onChange={(e) => setSort(e.target.value)} aria-label={t.runners.sort}>
            {Object.keys(orders).map((k) => <option key={k} value={k}>{t.runners.columns[k as keyof typeof t.runners.columns]}</option>)}
          </select>
        )}
        <div className="chips" role="group" aria-label={t.jobs.byState}>
          {states.filter((s) => s === "" || s === state || counts[s]).map((s) => (
            <button key={s} type="button" className="chip" aria-pressed={state === s} onClick={() => setState(s)}>
              {s === "" ? t.jobs.every : t.states[s]} {s ? <span className="num">{counts[s] ?? 0}</span> : null}
            </button>
          ))}
        </div>
      </div>
      <Panel flush>
        {runners.data.length === 0 ? (
          <Empty title={t.overview.noRunners}>
            <p>{t.overview.noRunnersText}</p>
            <code>tugline hub ticket</code>
          </Empty>
        ) : shown.length === 0 ? (
          <Empty title={t.runners.noneFit} action={<Button onPress={() => { setSearch(""); setState(""); }}>{t.jobs.clear}</Button>} />
        ) : (
          <>
            <div className="vhead runners-cols" role="group" aria-label={t.runners.sort}>
              {head("name", t.runners.columns.name)}
              {head("state", t.runners.columns.state)}
              {head("slots", t.runners.columns.slots, "mid")}
              <span className="wide mid">{t.runners.columns.harnesses}</span>
              {head("disk", t.runners.columns.disk, "mid")}
              {head("memory", t.runners.columns.memory, "mid")}
              {head("load", t.runners.columns.load, "wide mid")}
              <span className="wide mid">{t.runners.columns.docker}</span>
              {head("version", t.runners.columns.version, "wide mid")}
              {head("heard", t.runners.columns.heard, "mid")}
            </div>
            <VList items={shown} height={narrow ? 4.2 : 3.35} label={t.runners.title} row={row} keyOf={(r) => r.id} />
            <div className="list-foot"><span role="status">{t.runners.count(shown.length, runners.data.length)}</span></div>
          </>
        )}
      </Panel>
    </>
  );
}

const RunnerRow = memo(function RunnerRow({ runner: r }: { runner: Runner }) {
  const s = r.health.sample;
  const labels = Object.entries(r.labels).map(([k, v]) => `${k}=${v}`);
  const disk = s ? tight(s.workspace) : undefined;
  const why = [r.declining, r.conflict, r.hold?.reason, ...(r.slots.limited_by ?? []), ...(r.health.faults ?? []).map((f) => f.detail || f.kind)].filter(Boolean).join("\n");
  return (
    <Link className="vrow runners-cols" to={`/runners/${r.id}`} style={{ blockSize: "100%" }}>
      <span className="job-what">
        <span className="cut strong">{r.name}</span>
        <small className="cut">{[`${r.os}/${r.arch}`, ...labels].join(" · ")}</small>
      </span>
      <span><State state={standing(r)} since={r.hold && r.state === "online" ? r.hold.since : r.state === "online" ? undefined : r.last_heartbeat} why={why || undefined} /></span>
      <span className="mid"><Places used={r.slots.used} offered={r.slots.base_offered + r.slots.effective} of={r.slots.base + r.slots.automation} label={t.runners.slots(r.slots.used, r.slots.base_offered + r.slots.effective, r.slots.base + r.slots.automation)} /></span>
      <span className="wide mid cut">{(r.harnesses ?? []).map((h) => h.signed_in === "no" ? `${h.name} (${t.runners.signedOut})` : h.name).join(", ")}</span>
      <span className={`mid num ${disk === "bad" ? "bad-text" : disk === "warn" ? "warn-text" : ""}`}>{bytes(s?.workspace.free)}</span>
      <span className="mid num">{bytes(s?.memory?.available)}</span>
      <span className="wide mid num">{s?.cpu ? s.cpu.load.toFixed(2) : "–"}</span>
      <span className="wide mid"><State state={s?.docker.state ?? "unknown"} why={s?.docker.detail} compact /></span>
      <span className="wide mid cut">{r.version} <small className="quiet">{r.ring}</small></span>
      <span className="mid"><Age at={r.last_heartbeat} /></span>
    </Link>
  );
});
