import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { ask, hub, type Schemas } from "../api/client";
import { pages, q } from "../api/queries";
import { bytes, count, duration, span } from "../lib/format";
import { may, session } from "../lib/session";
import { useStore } from "../lib/store";
import { t } from "../text/en";
import { Icon } from "../ui/icons";
import { Button, Confirm, Facts, Failure, Id, Loading, PageHead, Panel } from "../ui/kit";
import { State } from "../ui/state";
import { Age } from "../ui/time";

type Member = Schemas["Member"];

export default function Cluster() {
  const who = useStore(session);
  const members = useQuery(q.members());
  const status = useQuery(q.status());
  const orphans = useQuery(q.orphans());
  const [act, setAct] = useState<{ kind: "drain" | "undrain" | "transfer"; member: Member }>();
  if (members.error && !members.data) return <Failure error={members.error} again={() => void members.refetch()} />;
  if (!members.data) return <Loading rows={6} />;
  const admin = may(who, "admin");
  const waiting = (orphans.data?.orphans ?? []).filter((o) => o.state === "waiting");
  return (
    <>
      <PageHead title={t.cluster.title} />
      {members.data.warnings?.map((w) => <p className="notice tone-warn" key={w}><Icon name="warn" /> {w}</p>)}
      <Panel title={t.cluster.nodes} more={<span>{t.cluster.term(members.data.term)} · {t.cluster.commit(count(members.data.commit_index))}</span>} flush>
        <div className="table-scroll">
          <table>
            <thead>
              <tr>
                <th>{t.cluster.node}</th>
                <th>{t.cluster.health}</th>
                <th>{t.cluster.role}</th>
                <th>{t.cluster.address}</th>
                <th>{t.cluster.version}</th>
                <th className="right">{t.cluster.lag}</th>
                <th className="right">{t.cluster.disk}</th>
                <th>{t.cluster.uptime}</th>
                <th><span className="offscreen">{t.circuits.actions}</span></th>
              </tr>
            </thead>
            <tbody>
              {(members.data.members ?? []).map((m) => (
                <tr key={m.id}>
                  <td className="nowrap"><Id id={m.id} text={m.id.slice(-8)} /> {m.self && <span className="tag">{t.cluster.self}</span>}</td>
                  <td><State state={m.health === "draining" ? "draining" : m.health} why={m.health_detail} /></td>
                  <td className="nowrap">{m.leader ? <span className="state tone-ok"><Icon name="crown" /> {t.cluster.leader}</span> : m.role}</td>
                  <td>{m.self ? m.url : <a href={m.url} rel="noreferrer">{m.url}</a>}</td>
                  <td>{m.version}</td>
                  <td className="right">{count(m.lag)}</td>
                  <td className="right nowrap">{bytes(m.disk_free_bytes)}</td>
                  <td className="nowrap">{m.uptime ? span(duration(m.uptime)) : "–"}</td>
                  <td>
                    {admin && m.role === "voter" && (members.data.members ?? []).length > 1 && (
                      <span className="row">
                        {!m.leader && <Button small onPress={() => setAct({ kind: "transfer", member: m })}>{t.cluster.lead}</Button>}
                        <Button small onPress={() => setAct({ kind: m.health === "draining" ? "undrain" : "drain", member: m })}>{m.health === "draining" ? t.cluster.undrain : t.cluster.drain}</Button>
                      </span>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Panel>
      {status.data && (
        <Panel title={t.cluster.about}>
          <Facts
            items={[
              [t.cluster.cluster, <Id key="c" id={status.data.cluster} />],
              [t.cluster.epoch, String(status.data.epoch)],
              [t.cluster.index, count(status.data.index)],
              [t.cluster.started, <Age key="s" at={status.data.started_at} ago />],
              [t.cluster.logBytes, bytes(status.data.disk.log_bytes)],
              [t.cluster.spool, bytes(status.data.disk.spool_bytes)],
              [t.cluster.blobs, bytes(status.data.disk.blob_bytes)],
              [t.cluster.free, bytes(status.data.disk.free_bytes)],
              [t.cluster.keepJobs, span(duration(status.data.retention.jobs))],
              [t.cluster.keepOutput, span(duration(status.data.retention.output))],
              [t.cluster.keepAudit, span(duration(status.data.retention.audit))],
            ]}
          />
        </Panel>
      )}
      {waiting.length > 0 && (
        <Panel title={t.cluster.orphans(waiting.length)} flush>
          <ul className="lines">
            {waiting.map((o) => (
              <li key={o.id}>
                <span className="grow">{o.runner_name} · {o.harness} · {o.argv?.join(" ") || o.repo}<small className="quiet">{o.detail}</small></span>
                <span className="end"><Age at={o.reported_at} ago /></span>
              </li>
            ))}
          </ul>
          <div className="list-foot">{t.cluster.orphansText}</div>
        </Panel>
      )}
      <Confirm
        title={act ? `${act.kind === "drain" ? t.cluster.drain : act.kind === "undrain" ? t.cluster.undrain : t.cluster.lead}: ${act.member.id.slice(-8)}` : ""}
        text={act?.kind === "drain" ? t.cluster.drainText : act?.kind === "undrain" ? t.cluster.undrainText : t.cluster.leadText}
        action={act?.kind === "drain" ? t.cluster.drain : act?.kind === "undrain" ? t.cluster.undrain : t.cluster.lead}
        open={act !== undefined}
        onClose={() => setAct(undefined)}
        run={async () => {
          if (!act) return;
          const params = { path: { id: act.member.id } };
          if (act.kind === "transfer") await ask(hub.POST("/v1/members/transfer", { body: { to: act.member.id } }));
          else await ask(hub.POST(act.kind === "drain" ? "/v1/members/{id}/drain" : "/v1/members/{id}/undrain", { params }));
          await pages.invalidateQueries({ queryKey: ["members"] });
        }}
      />
    </>
  );
}
