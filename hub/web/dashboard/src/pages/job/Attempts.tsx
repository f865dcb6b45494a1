import { Link } from "react-router";
import type { Job } from "../../api/queries";
import { bytes } from "../../lib/format";
import { t } from "../../text/en";
import { Empty, Panel } from "../../ui/kit";
import { State } from "../../ui/state";
import { Clock, Took } from "../../ui/time";

export function Attempts({ job }: { job: Job }) {
  return (
    <div className="stack">
      {(job.turns ?? []).map((turn) => (
        <Panel key={turn.n} title={t.attempts.turn(turn.n)} more={<State state={turn.state} since={turn.ended_at ?? turn.queued_at} />} flush>
          {!turn.attempts?.length ? (
            <Empty title={t.attempts.none}>{job.why}</Empty>
          ) : (
            <div className="table-scroll">
              <table>
                <thead>
                  <tr>
                    <th>{t.attempts.n}</th>
                    <th>{t.attempts.state}</th>
                    <th>{t.attempts.runner}</th>
                    <th>{t.attempts.model}</th>
                    <th>{t.attempts.assigned}</th>
                    <th>{t.attempts.took}</th>
                    <th>{t.attempts.end}</th>
                    <th className="right">{t.attempts.output}</th>
                    <th>{t.attempts.fence}</th>
                  </tr>
                </thead>
                <tbody>
                  {turn.attempts.map((a) => (
                    <tr key={a.n}>
                      <td>{a.accepted_at ? <Link to={`/jobs/${job.id}/terminal?attempt=${turn.n}.${a.n}`}>{a.n}</Link> : a.n}</td>
                      <td><State state={a.state} compact /></td>
                      <td><Link to={`/runners/${a.runner}`}>{a.runner_name}</Link></td>
                      <td>{[a.harness, a.model].filter(Boolean).join(" · ") || job.harness}</td>
                      <td className="nowrap"><Clock at={a.assigned_at} /></td>
                      <td className="nowrap"><Took from={a.started_at} to={a.finished_at} /></td>
                      <td className="wrap">
                        {[a.failure_class, a.exit && t.talk.exit(a.exit.code), a.detail, a.code].filter(Boolean).join(" · ")}
                        {a.notes?.map((n) => <div className="quiet" key={n}>{n}</div>)}
                        {a.pushes?.map((p) => <div className="quiet" key={p.at}>{t.attempts.push(p.ref, p.result ?? "")}</div>)}
                      </td>
                      <td className="right nowrap">{bytes(a.log.bytes)}{!a.log.sealed && "…"}</td>
                      <td><code>{a.fence}</code></td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
          {turn.transitions?.map((tr) => (
            <p key={tr.at} className="panel-body quiet">
              <Clock at={tr.at} /> {tr.from.harness}{tr.from.model && `:${tr.from.model}`} → {tr.to.harness}{tr.to.model && `:${tr.to.model}`} {tr.class.replaceAll("_", " ")} {tr.detail}
            </p>
          ))}
        </Panel>
      ))}
    </div>
  );
}
