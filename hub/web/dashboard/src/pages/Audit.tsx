import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { q } from "../api/queries";
import { may, session } from "../lib/session";
import { useStore } from "../lib/store";
import { useParam, useSettled } from "../lib/url";
import { t } from "../text/en";
import { Button, Empty, Failure, Loading, PageHead, Panel } from "../ui/kit";
import { Clock } from "../ui/time";

const kinds = ["job.", "runner.", "circuit.", "token.", "session.", "setting.", "member.", "release.", "key.", "budget.", "ticket."];

function target(command: string, subject: string): string | undefined {
  if (/^[0-9a-hjkmnp-tv-z]{26}$/.test(subject) && command.startsWith("job.")) return `/jobs/${subject}`;
  if (subject.startsWith("r-")) return `/runners/${subject}`;
  return undefined;
}

export default function Audit() {
  const who = useStore(session);
  const [actor, setActor] = useParam("actor");
  const [command, setCommand] = useParam("command");
  const [subject, setSubject] = useParam("subject");
  const f = { actor: useSettled(actor.trim()) || undefined, command: command || undefined, subject: useSettled(subject.trim()) || undefined };
  const admin = may(who, "admin");
  const audit = useInfiniteQuery({ ...q.audit(f), enabled: admin });
  if (!admin) return <Empty title={t.audit.admin} />;
  const records = audit.data?.pages.flatMap((p) => p.records) ?? [];
  return (
    <>
      <PageHead title={t.audit.title} />
      <div className="filters">
        <select value={command} onChange={(e) => setCommand(e.target.value)} aria-label={t.audit.command}>
          <option value="">{t.audit.every}</option>
          {kinds.map((k) => <option key={k} value={k}>{k.slice(0, -1)}</option>)}
        </select>
        <div className="search"><input type="search" value={actor} onChange={(e) => setActor(e.target.value)} placeholder={t.audit.byActor} aria-label={t.audit.byActor} /></div>
        <div className="search"><input type="search" value={subject} onChange={(e) => setSubject(e.target.value)} placeholder={t.audit.bySubject} aria-label={t.audit.bySubject} /></div>
      </div>
      <Panel flush>
        {audit.error && !audit.data ? (
          <Failure error={audit.error} again={() => void audit.refetch()} />
        ) : !audit.data ? (
          <Loading rows={8} />
        ) : records.length === 0 ? (
          <Empty title={t.audit.none} />
        ) : (
          <>
            <div className="table-scroll">
              <table>
                <thead>
                  <tr>
                    <th>{t.audit.at}</th>
                    <th>{t.audit.actor}</th>
                    <th>{t.audit.command}</th>
                    <th>{t.audit.subject}</th>
                    <th>{t.audit.detail}</th>
                    <th>{t.audit.address}</th>
                  </tr>
                </thead>
                <tbody>
                  {records.map((r) => {
                    const to = r.subject && target(r.command, r.subject);
                    return (
                      <tr key={r.index}>
                        <td className="nowrap"><Clock at={r.at} /></td>
                        <td title={r.actor}>{r.actor_name || r.actor}</td>
                        <td><code>{r.command}</code></td>
                        <td>{to ? <Link to={to}><code>{r.subject}</code></Link> : <code>{r.subject}</code>}</td>
                        <td className="wrap">{r.detail}</td>
                        <td className="nowrap">{r.address}</td>
                      </tr>
                    );
                  })}
                </tbody>
              </table>
            </div>
            {audit.hasNextPage && <div className="list-foot"><Button look="ghost" small onPress={() => void audit.fetchNextPage()} isDisabled={audit.isFetchingNextPage}>{t.jobs.older}</Button></div>}
          </>
        )}
      </Panel>
    </>
  );
}
