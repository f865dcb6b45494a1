import type { Job } from "../../api/queries";
import { bytes, sha } from "../../lib/format";
import { t } from "../../text/en";
import { Empty, Facts, Id, Panel } from "../../ui/kit";
import { Icon } from "../../ui/icons";

const tones: Record<string, string> = { accept: "ok", reject: "bad", review: "warn" };

export function Evidence({ job }: { job: Job }) {
  // Both are null until the job has come so far, which the description does not say.
  const v = job.verdict as Job["verdict"] | null;
  const e = job.evidence as Job["evidence"] | null;
  if (!v && !e) return <Panel><Empty title={t.evidence.none} /></Panel>;
  return <Known job={job} v={v ?? nothing.verdict} e={e ?? nothing.evidence} />;
}

const nothing = { verdict: { decision: "", by: "", reasons: [] }, evidence: { bundle_checked: false, commit_count: 0, no_repo: true, stat: { files: 0, insertions: 0, deletions: 0 } } };

function Known({ job, v, e }: { job: Job; v: Job["verdict"]; e: Job["evidence"] }) {
  const tone = tones[v.decision] ?? "wait";
  return (
    <div className="stack">
      <div className={`verdict tone-${tone}`}>
        <Icon name={tone === "ok" ? "ok" : tone === "bad" ? "bad" : tone === "warn" ? "ask" : "wait"} />
        <span>
          {v.decision ? (t.evidence.decisions[v.decision as keyof typeof t.evidence.decisions] ?? v.decision) : t.evidence.none}
          {v.by && <small> {t.evidence.by(v.by === "gate" ? t.evidence.gate : v.by)}</small>}
        </span>
      </div>
      <div className="grid">
        <Panel title={t.evidence.reasons}>
          {v.reasons?.length ? <ul className="stack">{v.reasons.map((r) => <li key={r}>{r}</li>)}</ul> : <p className="quiet">{t.evidence.noReasons}</p>}
          {e.closure && <p className="notice tone-run">{t.evidence.closure} {e.closure}</p>}
        </Panel>
        <Panel title={t.evidence.facts}>
          <Facts
            items={[
              [t.evidence.exit, job.exit_code === null ? undefined : [job.exit_code, job.exit?.reason, job.exit?.signal].filter((x) => x !== undefined && x !== "").join(" ")],
              [t.evidence.cls, job.failure_class],
              [t.evidence.branch, e.branch && <code>{e.branch}</code>],
              [t.evidence.base, e.base && <Id id={e.base} text={sha(e.base)} />],
              [t.evidence.tip, e.tip && <Id id={e.tip} text={sha(e.tip)} />],
              [t.evidence.descends, e.tip && (e.descends ? t.yes : t.no)],
              [t.evidence.stat, e.no_repo ? t.evidence.noRepo : t.evidence.statOf(e.stat.files, e.stat.insertions, e.stat.deletions)],
              [t.evidence.bundle, e.bundle && `${bytes(e.bundle_size)}, ${e.bundle_checked ? t.evidence.checked : (e.bundle_error ?? t.evidence.unchecked)}`],
              [t.evidence.runnerCommit, e.runner_commit && <code>{sha(e.runner_commit)}</code>],
              [t.evidence.rescue, e.rescue_ref && <code>{e.rescue_ref}</code>],
              [t.evidence.swept, e.swept ? String(e.swept) : undefined],
              [t.evidence.tokens, job.usage?.input_tokens || job.usage?.output_tokens ? t.evidence.tokensOf(job.usage.input_tokens, job.usage.output_tokens) : undefined],
            ]}
          />
          {e.notes?.map((n) => <p className="notice" key={n}>{n}</p>)}
        </Panel>
      </div>
      {!e.no_repo && (
        <Panel title={t.evidence.commits(e.commit_count)} flush>
          {e.commits?.length ? (
            <ul className="lines">
              {e.commits.map((c) => (
                <li key={c.sha}>
                  <code>{sha(c.sha)}</code>
                  <span className="grow">{c.subject}</span>
                  <span className="end">{c.author}</span>
                </li>
              ))}
            </ul>
          ) : (
            <Empty title={t.evidence.noCommits} />
          )}
        </Panel>
      )}
    </div>
  );
}
