import { useQuery } from "@tanstack/react-query";
import { q, type Job } from "../../api/queries";
import { t } from "../../text/en";
import { Empty, Failure, Loading, Panel } from "../../ui/kit";
import { Age, Until } from "../../ui/time";

export function Placement({ job }: { job: Job }) {
  const e = useQuery(q.explain(job.id));
  if (e.error && !e.data) return <Failure error={e.error} again={() => void e.refetch()} />;
  if (!e.data) return <Loading />;
  const x = e.data;
  return (
    <Panel title={t.place.title} more={<span>{t.place.seen} <Age at={x.at} ago /></span>} flush>
      <div className="panel-body stack">
        <p className="strong">{x.summary}</p>
        {x.change && <p>{t.place.change} {x.change}</p>}
        <p className="row quiet">
          {x.code && <span className="tag">{x.code}</span>}
          {x.ahead > 0 && <span>{t.place.ahead(x.ahead)}</span>}
          {x.until && <span>{t.place.until} <Until at={x.until} /></span>}
        </p>
        {x.notes?.map((n) => <p className="notice tone-warn" key={n}>{n}</p>)}
      </div>
      {x.runners && x.runners.length > 0 ? (
        <div className="table-scroll">
          <table>
            <thead>
              <tr>
                <th>{t.place.runner}</th>
                <th>{t.place.why}</th>
                <th>{t.place.remedy}</th>
                <th>{t.place.until}</th>
              </tr>
            </thead>
            <tbody>
              {x.runners.map((r) => (
                <tr key={r.runner}>
                  <td className="strong">{r.runner}</td>
                  <td className="wrap">{r.detail} <span className="tag">{r.code}</span></td>
                  <td className="wrap">{r.change ?? <span className="quiet">–</span>}</td>
                  <td className="nowrap">{r.until ? <Until at={r.until} /> : <span className="quiet">–</span>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        <Empty title={t.place.none}>{x.state === "queued" ? t.place.noRunner : t.place.noNeed}</Empty>
      )}
      {x.more ? <div className="list-foot">{t.place.more(x.more)}</div> : null}
    </Panel>
  );
}
