import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useState } from "react";
import { Tab, TabList, TabPanel, Tabs } from "react-aria-components";
import { Link, useNavigate, useParams } from "react-router";
import { ask, HubError, hub, once } from "../api/client";
import { pages, q, type Job } from "../api/queries";
import { cancelling, ended, repoName, title } from "../api/slim";
import { may, session } from "../lib/session";
import { useStore } from "../lib/store";
import { t } from "../text/en";
import { Icon } from "../ui/icons";
import { Button, Confirm, Empty, ButtonLink, Facts, Failure, Field, Id, Loading, PageHead, Panel } from "../ui/kit";
import { State } from "../ui/state";
import { Age, Took } from "../ui/time";
import { Activity } from "./job/Activity";
import { Artifacts } from "./job/Artifacts";
import { Attempts } from "./job/Attempts";
import { AttemptChoice, useAttempt } from "./job/choice";
import { Conversation } from "./job/Conversation";
import { Evidence } from "./job/Evidence";
import { Placement } from "./job/Placement";

const Terminal = lazy(() => import("./job/Terminal"));
const Changes = lazy(() => import("./job/Changes"));

const tabs = ["conversation", "activity", "terminal", "changes", "artifacts", "placement", "evidence", "attempts"] as const;
type TabName = (typeof tabs)[number];

/** firstTab is what people look for first in a job of its kind and state. */
export function firstTab(j: Pick<Job, "kind" | "state">): TabName {
  if (j.state === "queued") return "placement";
  return j.kind === "agent" ? "conversation" : "terminal";
}

export default function JobPage() {
  const { id = "", tab } = useParams();
  const navigate = useNavigate();
  const job = useQuery(q.job(id));
  // The tab that a job is opened at stays, whatever becomes of the job meanwhile.
  const [first, setFirst] = useState<{ id: string; tab: TabName }>();
  useEffect(() => {
    if (job.data && first?.id !== id) setFirst({ id, tab: firstTab(job.data) });
  }, [job.data, first, id]);

  if (job.error && !job.data) {
    if (job.error instanceof HubError && job.error.status === 404)
      return <Empty title={t.job.gone} action={<ButtonLink to="/jobs">{t.job.toList}</ButtonLink>}>{t.job.goneText}</Empty>;
    return <Failure error={job.error} again={() => void job.refetch()} />;
  }
  if (!job.data || first?.id !== id) return <Loading rows={6} />;
  const j = job.data;
  const chosen = tabs.includes(tab as TabName) ? (tab as TabName) : first.tab;
  return (
    <>
      <Head job={j} />
      <Tabs selectedKey={chosen} onSelectionChange={(k) => void navigate(`/jobs/${id}/${k}`, { replace: true })}>
        <TabList className="tabs" aria-label={t.job.tabs}>
          {tabs.map((k) => (
            <Tab key={k} id={k} className="tab">{t.job.tab[k]}</Tab>
          ))}
        </TabList>
        {tabs.map((k) => (
          <TabPanel key={k} id={k} className="tab-panel">
            <Suspense fallback={<Loading />}>
              <Body tab={k} job={j} />
            </Suspense>
          </TabPanel>
        ))}
      </Tabs>
    </>
  );
}

function Body({ tab, job }: { tab: TabName; job: Job }) {
  switch (tab) {
    case "conversation":
      return <Conversation job={job} />;
    case "activity":
      return <Activity job={job} />;
    case "terminal":
      return <TerminalTab job={job} />;
    case "changes":
      return <Changes job={job} />;
    case "artifacts":
      return <Artifacts job={job} />;
    case "placement":
      return <Placement job={job} />;
    case "evidence":
      return <Evidence job={job} />;
    case "attempts":
      return <Attempts job={job} />;
  }
}

function TerminalTab({ job }: { job: Job }) {
  const choice = useAttempt(job);
  const a = choice.attempt;
  if (!a) return <Panel><Empty title={t.term.none}>{job.why}</Empty></Panel>;
  return (
    <div className="stack">
      <AttemptChoice {...choice} />
      <Terminal key={`${choice.turn}.${a.n}`} place={{ job: job.id, turn: choice.turn, attempt: a.n }} size={a.log.durable_bytes} sealed={a.log.sealed} />
    </div>
  );
}

function Head({ job: j }: { job: Job }) {
  const who = useStore(session);
  const [dialog, setDialog] = useState<"cancel" | "retry" | "accept" | "reject">();
  const [reason, setReason] = useState("");
  const stopping = cancelling(j);
  const can = may(who, "operator");
  const done = () => pages.invalidateQueries({ queryKey: ["job", j.id] });
  const params = { path: { id: j.id }, header: once() };
  const close = () => setDialog(undefined);
  const name = title(j) || t.jobs.untitled(j.harness);
  const model = j.reported_model || j.effective.model || j.model;
  return (
    <>
      <PageHead
        crumb={<Link to="/jobs">{t.nav.jobs}</Link>}
        title={name}
        sub={
          <>
            <State state={stopping ? "cancelling" : j.state} since={stopping ? j.cancel_requested_at : j.reason.since} why={j.why ?? j.reason.detail} />
            {stopping && <span className="warn-text">{t.job.stopping}</span>}
            <Id id={j.id} />
          </>
        }
        actions={
          can && (
            <>
              {j.state === "needs_review" && (
                <>
                  <Button look="primary" onPress={() => setDialog("accept")}><Icon name="check" /> {t.job.accept}</Button>
                  <Button onPress={() => setDialog("reject")}>{t.job.reject}</Button>
                </>
              )}
              {ended(j.state) && j.state !== "succeeded" && j.state !== "needs_review" && <Button onPress={() => setDialog("retry")}>{t.job.retry}</Button>}
              <ButtonLink to={`/jobs/new?like=${j.id}`}>{t.job.again}</ButtonLink>
              {(!ended(j.state) || j.state === "lost" || j.state === "blocked") && (
                <Button look="danger" onPress={() => setDialog("cancel")} isDisabled={stopping}>{stopping ? t.states.cancelling : t.job.cancel}</Button>
              )}
            </>
          )
        }
      />
      {j.why && !ended(j.state) && j.state !== "running" && <p className="notice tone-wait"><Icon name="wait" /> {j.why}</p>}
      {j.why && ["blocked", "lost", "needs_review", "failed"].includes(j.state) && <p className={`notice tone-${j.state === "lost" ? "lost" : j.state === "failed" ? "bad" : "warn"}`}><Icon name={j.state === "failed" ? "bad" : j.state === "lost" ? "lost" : "warn"} /> {j.why}</p>}
      <Panel>
        <Facts
          items={[
            [t.job.runner, j.runner ? <Link to={`/runners/${j.runner_id}`}>{j.runner}</Link> : j.spec.on ? t.job.pinned(j.spec.on) : t.job.auto],
            [t.job.harness, [j.harness, model].filter(Boolean).join(" · ")],
            [t.job.repo, j.repo && <code title={j.repo}>{repoName(j.repo)}</code>],
            [t.job.branch, j.branch && <code>{j.branch}</code>],
            [t.job.created, <><Age at={j.created_at} ago /> {j.actor_name && t.job.by(j.spec.origin.name ?? j.actor_name)}</>],
            [t.job.took, j.started_at && <Took from={j.started_at} to={j.finished_at} />],
            [t.job.permissions, j.permissions],
            [t.job.turn, j.turn > 1 || j.attempt > 1 ? t.attempts.short(j.turn, j.attempt) : undefined],
            [t.job.budget, j.budget.used > 1 ? `${j.budget.used} / ${j.budget.of}` : undefined],
            [t.job.push, j.spec.push && <code>{j.spec.push}</code>],
          ]}
        />
      </Panel>
      <Confirm title={t.job.cancelTitle} text={t.job.cancelText} action={t.job.cancel} danger open={dialog === "cancel"} onClose={close} run={async () => { await ask(hub.POST("/v1/jobs/{id}/cancel", { params, body: {} })); await done(); }} />
      <Confirm title={t.job.retryTitle} text={j.state === "blocked" ? t.job.retryBlocked : t.job.retryText} action={t.job.retry} open={dialog === "retry"} onClose={close} run={async () => { await ask(hub.POST("/v1/jobs/{id}/retry", { params, body: j.state === "blocked" ? { grant: true } : {} })); await done(); }} />
      {(["accept", "reject"] as const).map((k) => (
        <Confirm
          key={k}
          title={k === "accept" ? t.job.acceptTitle : t.job.rejectTitle}
          text={k === "accept" ? t.job.acceptText : t.job.rejectText}
          action={k === "accept" ? t.job.accept : t.job.reject}
          danger={k === "reject"}
          open={dialog === k}
          onClose={close}
          run={async () => {
            await ask(hub.POST(k === "accept" ? "/v1/jobs/{id}/accept" : "/v1/jobs/{id}/reject", { params, body: reason ? { reason } : {} }));
            await done();
          }}
        >
          <Field label={t.job.reason}>{(id) => <input id={id} type="text" value={reason} onChange={(e) => setReason(e.target.value)} maxLength={200} />}</Field>
        </Confirm>
      ))}
    </>
  );
}
