import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { q } from "../api/queries";
import type { Row } from "../api/slim";
import { bytes, count } from "../lib/format";
import { alertTarget, withoutIds } from "../lib/fleet";
import { may, session } from "../lib/session";
import { useStore } from "../lib/store";
import { t } from "../text/en";
import { Icon } from "../ui/icons";
import { ButtonLink, Empty, Failure, Loading, Meter, PageHead, Panel } from "../ui/kit";
import { State } from "../ui/state";
import { Age, Until } from "../ui/time";

const broken = new Set(["lost_job", "disk", "docker", "offline", "refused", "no_leader", "release_halted"]);

export default function Overview() {
  const who = useStore(session);
  const overview = useQuery(q.overview());
  const members = useQuery(q.members());
  const alerts = useQuery(q.alerts());
  const running = useInfiniteQuery(q.jobs({ state: "running", limit: 50 }));
  const queued = useInfiniteQuery(q.jobs({ state: "queued", limit: 200 }));
  const recent = useInfiniteQuery(q.jobs({ limit: 50 }));

  if (overview.error && !overview.data) return <Failure error={overview.error} again={() => void overview.refetch()} />;
  if (!overview.data) return <Loading rows={8} />;

  const o = overview.data;
  const states = o.runners.states;
  const away = (states.offline ?? 0) + (states.refused ?? 0) + (states.unknown ?? 0);
  const used = o.manual.used + o.automation.used;
  const offered = o.manual.offered + o.automation.offered;
  const open = o.circuits ?? [];
  const ends = open.map((c) => c.until).filter(Boolean).sort();
  const waiting = queued.data?.pages.flatMap((p) => p.jobs) ?? [];
  const nodes = (members.data?.members ?? []).filter((m) => m.role !== "removed");
  const list = (o.concerns ?? []).map((c) => ({ ...c, tone: broken.has(c.kind) ? ("bad" as const) : ("warn" as const) }));
  for (const w of members.data?.warnings ?? []) list.push({ kind: "hub", text: w, since: null, link: "/cluster", tone: "warn" });
  const worst = list.some((c) => c.tone === "bad") ? "bad" : list.length > 0 ? "warn" : undefined;

  return (
    <>
      <PageHead title={t.overview.title} />
      {o.runners.total === 0 ? (
        <Panel>
          <Empty title={t.overview.noRunners}>
            <p>{t.overview.noRunnersText}</p>
            <code>tugline hub ticket</code>
          </Empty>
        </Panel>
      ) : (
        <div className={`verdict tone-${worst ?? "ok"}`}>
          <Icon name={worst === "bad" ? "bad" : worst === "warn" ? "warn" : "ok"} />
          <span>{worst ? t.overview.attention(list.length + o.more_concerns) : t.overview.fine}</span>
        </div>
      )}

      <div className="tiles">
        <Link className={`tile${away ? " tone-bad" : states.stale ? " tone-warn" : ""}`} to="/runners">
          <span className="tile-name"><Icon name="runners" /> {t.overview.runners}</span>
          <span className="tile-value">{states.online ?? 0} <small>/ {o.runners.total} {t.overview.online}</small></span>
          <span className="tile-sub">
            <span>{t.overview.stale(states.stale ?? 0)}</span>
            <span>{t.overview.offline(away)}</span>
            <span>{t.overview.held(o.runners.held)}</span>
          </span>
        </Link>
        <Link className="tile" to="/runners?sort=slots">
          <span className="tile-name"><Icon name="dot" /> {t.overview.slots}</span>
          <span className="tile-value">{used} <small>/ {offered} {t.overview.taken}</small></span>
          <span className="tile-sub">
            <span>{t.overview.people(o.manual.used, o.manual.offered)}</span>
            <span>{t.overview.automation(o.automation.used, o.automation.offered)}</span>
          </span>
          <Meter value={used} of={Math.max(1, offered)} label={t.overview.slotsLabel(used, offered)} />
        </Link>
        <Link className="tile" to="/jobs?state=queued">
          <span className="tile-name"><Icon name="wait" /> {t.overview.queue}</span>
          <span className="tile-value">{count(o.queue.depth)}</span>
          <span className="tile-sub">{o.queue.oldest_queued_at ? <span>{t.overview.oldest} <Age at={o.queue.oldest_queued_at} /></span> : <span>{t.overview.noneWaits}</span>}</span>
        </Link>
        <Link className="tile" to="/jobs?state=running">
          <span className="tile-name"><Icon name="run" /> {t.overview.running}</span>
          <span className="tile-value">{count(o.jobs.running ?? 0)}</span>
          <span className="tile-sub">
            <span>{t.overview.preparing((o.jobs.assigned ?? 0) + (o.jobs.preparing ?? 0))}</span>
            <span>{t.overview.verifying(o.jobs.verifying ?? 0)}</span>
          </span>
        </Link>
        <Link className={`tile${open.length ? " tone-bad" : ""}`} to="/circuits">
          <span className="tile-name"><Icon name="circuits" /> {t.overview.circuits}</span>
          <span className="tile-value">{open.length}</span>
          <span className="tile-sub">{ends.length > 0 ? <span>{t.overview.nextTry} <Until at={ends[0]} /></span> : <span>{open.length ? t.overview.needPerson : t.overview.noCircuits}</span>}</span>
        </Link>
        <Link className="tile" to="/cluster">
          <span className="tile-name"><Icon name="cluster" /> {t.overview.hub}</span>
          <span className="tile-value">{nodes.filter((m) => m.health === "ok").length} <small>/ {o.hubs} {t.overview.nodes}</small></span>
          <span className="tile-sub">
            <span>{t.overview.leader} <code>{(o.leader || "–").slice(-6)}</code></span>
            {nodes.length > 0 && <span>{bytes(Math.min(...nodes.map((m) => m.disk_free_bytes)))} {t.overview.free}</span>}
          </span>
        </Link>
      </div>

      <div className="grid wide-left">
        <div className="stack">
          {list.length > 0 && (
            <Panel title={t.overview.look} more={<span className="badge bad">{list.length}</span>} flush>
              <ul className="lines">
                {list.slice(0, 12).map((x, i) => (
                  <li key={i}>
                    <span className={`tone-${x.tone} state compact`}><Icon name={x.tone === "bad" ? "bad" : "warn"} /><span className="offscreen">{t.overview.tones[x.tone]}</span></span>
                    <Link className="grow" to={x.link}>{x.name && !x.text.includes(x.name) && <strong>{x.name} </strong>}{withoutIds(x.text)}</Link>
                    {x.since && <span className="end"><Age at={x.since} /></span>}
                  </li>
                ))}
                {list.length + o.more_concerns > 12 && <li><span className="quiet">{t.overview.more(list.length + o.more_concerns - 12)}</span></li>}
              </ul>
            </Panel>
          )}
          <Panel title={t.overview.now} more={<Link to="/jobs?active=true">{t.overview.all}</Link>} flush>
            <JobLines jobs={(running.data?.pages[0]?.jobs ?? []).slice(0, 10)} none={t.overview.nothingRuns} />
          </Panel>
          <Panel title={t.overview.waits} more={<Link to="/jobs?state=queued">{t.overview.all}</Link>} flush>
            <JobLines jobs={waiting.slice(-8).reverse()} none={t.overview.noneWaits} why />
          </Panel>
        </div>
        <div className="stack">
          <Panel title={t.overview.recent} more={<Link to="/jobs">{t.overview.all}</Link>} flush>
            {recent.data && recent.data.pages[0]?.jobs.length === 0 ? (
              <Empty title={t.jobs.none} action={may(who, "operator") && <ButtonLink look="primary" to="/jobs/new">{t.nav.newJob}</ButtonLink>}>
                <p>{t.jobs.noneText}</p>
              </Empty>
            ) : (
              <JobLines jobs={(recent.data?.pages[0]?.jobs ?? []).filter((j) => j.finished).slice(0, 10)} none={t.overview.nothingEnded} />
            )}
          </Panel>
          <Panel title={t.overview.alerts} more={<span>{t.overview.alertsMore}</span>} flush>
            {alerts.data?.length === 0 && <Empty title={t.overview.noAlerts} />}
            <ul className="lines">
              {alerts.data?.slice(0, 8).map((a) => (
                <li key={a.id}>
                  <State state={t.alertTone(a.kind)} compact />
                  <Link className="grow" to={alertTarget(a)}>
                    {withoutIds(a.text)}
                    <small className="quiet"><Age at={a.at} ago /></small>
                  </Link>
                </li>
              ))}
            </ul>
          </Panel>
        </div>
      </div>
    </>
  );
}

/** JobLines is a short list of jobs. */
export function JobLines({ jobs, none, why }: { jobs: Row[]; none: string; why?: boolean }) {
  if (jobs.length === 0) return <div className="panel-body quiet">{none}</div>;
  return (
    <ul className="lines">
      {jobs.map((j) => (
        <li key={j.id}>
          <State state={j.cancelling ? "cancelling" : j.state} since={j.since} why={j.detail} />
          <Link className="grow" to={`/jobs/${j.id}`}>
            <span className={why ? undefined : "cut"} style={why ? undefined : { display: "block" }}>{j.title || t.jobs.untitled(j.harness)}</span>
            {why && j.detail && <small className="quiet">{j.detail}</small>}
          </Link>
          <span className="end hide-narrow">{j.runner || j.harness}</span>
        </li>
      ))}
    </ul>
  );
}
