import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { memo, useCallback, useMemo } from "react";
import { Link } from "react-router";
import { q } from "../api/queries";
import type { Row } from "../api/slim";
import { count } from "../lib/format";
import { may, session } from "../lib/session";
import { useStore } from "../lib/store";
import { useNarrow } from "../lib/narrow";
import { useParam, useSettled } from "../lib/url";
import { t } from "../text/en";
import { Icon } from "../ui/icons";
import { Button, ButtonLink, Empty, Failure, Loading, PageHead, Panel } from "../ui/kit";
import { State } from "../ui/state";
import { Age, Took } from "../ui/time";
import { VList } from "../ui/vlist";

const chips = ["", "active", "queued", "running", "needs_review", "blocked", "failed", "lost", "succeeded", "cancelled"] as const;

export default function Jobs() {
  const who = useStore(session);
  const [state, setState] = useParam("state");
  const [active, setActive] = useParam("active");
  const [runner, setRunner] = useParam("runner");
  const [harness, setHarness] = useParam("harness");
  const [search, setSearch] = useParam("q");
  const narrow = useNarrow();
  const runners = useQuery(q.runners());
  const status = useQuery(q.status());
  const words = useSettled(search.trim());
  const jobs = useInfiniteQuery(q.jobs({ state: state || undefined, active: active === "true" || undefined, runner: runner || undefined, harness: harness || undefined, q: words || undefined }));

  const shown = useMemo(() => jobs.data?.pages.flatMap((p) => p.jobs) ?? [], [jobs.data]);
  const harnesses = useMemo(() => [...new Set([...(runners.data ?? []).flatMap((r) => (r.harnesses ?? []).map((h) => h.name)), ...(harness ? [harness] : [])])].sort(), [runners.data, harness]);
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = jobs;
  const onEnd = useCallback(() => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [hasNextPage, isFetchingNextPage, fetchNextPage]);
  const row = useCallback((j: Row) => <JobRow job={j} />, []);
  const chosen = active === "true" ? "active" : state;
  const filtered = Boolean(state || active || runner || harness || search);

  const choose = (c: string) => {
    setActive(c === "active" ? "true" : "");
    setState(c === "active" ? "" : c);
  };
  const clear = () => {
    choose("");
    setRunner("");
    setHarness("");
    setSearch("");
  };

  return (
    <>
      <PageHead title={t.jobs.title} />
      <div className="filters">
        <div className="search">
          <Icon name="search" />
          <input type="search" value={search} onChange={(e) => setSearch(e.target.value)} placeholder={t.jobs.search} aria-label={t.jobs.search} />
        </div>
        <select value={runner} onChange={(e) => setRunner(e.target.value)} aria-label={t.jobs.byRunner}>
          <option value="">{t.jobs.anyRunner}</option>
          {runners.data?.map((r) => <option key={r.id} value={r.name}>{r.name}</option>)}
          {runner && !runners.data?.some((r) => r.name === runner) && <option value={runner}>{runner}</option>}
        </select>
        <select value={harness} onChange={(e) => setHarness(e.target.value)} aria-label={t.jobs.harness}>
          <option value="">{t.jobs.anyHarness}</option>
          {harnesses.map((h) => <option key={h} value={h}>{h}</option>)}
        </select>
      </div>
      <div className="chips" role="group" aria-label={t.jobs.byState}>
        {chips.map((c) => (
          <button key={c} type="button" className="chip" aria-pressed={chosen === c} onClick={() => choose(c)}>
            {c === "" ? t.jobs.every : c === "active" ? t.jobs.active : t.states[c]}
            {c && c !== "active" && status.data?.jobs[c] ? <span className="num">{count(status.data.jobs[c])}</span> : null}
          </button>
        ))}
      </div>
      <Panel flush>
        {jobs.error && !jobs.data ? (
          <Failure error={jobs.error} again={() => void jobs.refetch()} />
        ) : !jobs.data ? (
          <Loading rows={10} />
        ) : shown.length === 0 && !hasNextPage ? (
          filtered ? (
            <Empty title={t.jobs.noneFit} action={<Button onPress={clear}>{t.jobs.clear}</Button>} />
          ) : (
            <Empty title={t.jobs.none} action={may(who, "operator") && <ButtonLink look="primary" to="/jobs/new">{t.nav.newJob}</ButtonLink>}>
              <p>{t.jobs.noneText}</p>
              <code>tugline exec --repo . -- make test</code>
            </Empty>
          )
        ) : (
          <>
            <div className="vhead jobs-cols" aria-hidden>
              <span>{t.jobs.state}</span>
              <span>{t.jobs.what}</span>
              <span>{t.jobs.runner}</span>
              <span>{t.jobs.harness}</span>
              <span>{t.jobs.created}</span>
              <span>{t.jobs.took}</span>
            </div>
            <VList items={shown} height={narrow ? 4.9 : 3.35} label={t.jobs.title} row={row} keyOf={(j) => j.id} onEnd={onEnd} total={hasNextPage ? -1 : shown.length} />
            <div className="list-foot">
              <span role="status">{t.jobs.loaded(count(shown.length))}</span>
              {hasNextPage && <Button look="ghost" small onPress={onEnd} isDisabled={isFetchingNextPage}>{isFetchingNextPage ? t.loading : t.jobs.older}</Button>}
            </div>
          </>
        )}
      </Panel>
    </>
  );
}

const JobRow = memo(function JobRow({ job: j }: { job: Row }) {
  return (
    <Link className="vrow jobs-cols" to={`/jobs/${j.id}`} style={{ blockSize: "100%" }}>
      <span className="cell-state"><State state={j.cancelling ? "cancelling" : j.state} since={j.since} why={j.detail} /></span>
      <span className="job-what">
        <span className="cut">{j.title || t.jobs.untitled(j.harness)}</span>
        <small className="cut">{[j.detail && j.state !== "succeeded" ? j.detail : "", j.repo, j.origin].filter(Boolean).join(" · ") || j.id}</small>
      </span>
      <span className="cut wide">{j.runner || <span className="quiet">–</span>}</span>
      <span className="cut wide">{j.harness}{j.model && <small className="quiet"> {j.model}</small>}</span>
      <span className="cell-age"><Age at={j.created} ago /></span>
      <span className="wide"><Took from={j.started} to={j.finished} /></span>
    </Link>
  );
});
