import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";
import { ask, hub, type Schemas } from "../api/client";
import { pages, q } from "../api/queries";
import { may, session } from "../lib/session";
import { useStore } from "../lib/store";
import { useParam } from "../lib/url";
import { t } from "../text/en";
import { Button, Confirm, Empty, Failure, Field, Loading, PageHead, Panel } from "../ui/kit";
import { State } from "../ui/state";
import { Age, Until } from "../ui/time";

type Circuit = Schemas["Circuit"];

export default function Circuits() {
  const who = useStore(session);
  const [all, setAll] = useParam("all");
  const circuits = useQuery(q.circuits(all === "true"));
  const [open, setOpen] = useState(false);
  return (
    <>
      <PageHead title={t.circuits.title} actions={may(who, "operator") && <Button onPress={() => setOpen(true)}>{t.circuits.open}</Button>} />
      <p className="quiet">{t.circuits.about}</p>
      <div className="chips" role="group" aria-label={t.circuits.which}>
        <button type="button" className="chip" aria-pressed={all !== "true"} onClick={() => setAll("")}>{t.circuits.standing}</button>
        <button type="button" className="chip" aria-pressed={all === "true"} onClick={() => setAll("true")}>{t.circuits.everyone}</button>
      </div>
      <Panel flush>
        {circuits.error && !circuits.data ? (
          <Failure error={circuits.error} again={() => void circuits.refetch()} />
        ) : !circuits.data ? (
          <Loading />
        ) : circuits.data.length === 0 ? (
          <Empty title={t.circuits.none}>{t.circuits.noneText}</Empty>
        ) : (
          <CircuitTable circuits={circuits.data} />
        )}
      </Panel>
      <OpenCircuit open={open} onClose={() => setOpen(false)} />
    </>
  );
}

export function CircuitTable({ circuits }: { circuits: Circuit[] }) {
  const who = useStore(session);
  const [reset, setReset] = useState<Circuit>();
  const [repaired, setRepaired] = useState("");
  return (
    <div className="table-scroll">
      <table>
        <thead>
          <tr>
            <th>{t.circuits.state}</th>
            <th>{t.circuits.over}</th>
            <th>{t.circuits.why}</th>
            <th>{t.circuits.until}</th>
            <th><span className="offscreen">{t.circuits.actions}</span></th>
          </tr>
        </thead>
        <tbody>
          {circuits.map((c) => (
            <tr key={c.id}>
              <td><State state={c.state} since={c.changed_at} why={c.text} /></td>
              <td className="wrap">
                <span className="strong">{c.over}</span> <span className="tag">{c.scope}</span>
                {c.runner && <div><Link to={`/runners/${c.runner}`}>{c.runner_name || c.runner}</Link></div>}
              </td>
              <td className="wrap">
                {c.class.replaceAll("_", " ")}{c.text && `: ${c.text}`}
                {c.actor_name && <div className="quiet">{t.job.by(c.actor_name)}</div>}
                {c.probe && <div className="quiet">{t.circuits.probe} <Link to={`/jobs/${c.probe.job}`}>{c.probe.job.slice(-6)}</Link> <Age at={c.probe.at} ago /></div>}
              </td>
              <td className="nowrap">{c.state === "blocked" ? t.circuits.person : c.until ? <Until at={c.until} /> : <span className="quiet">–</span>}</td>
              <td>{may(who, "operator") && c.state !== "closed" && <Button small onPress={() => setReset(c)}>{t.circuits.reset}</Button>}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <Confirm
        title={t.circuits.resetTitle}
        text={<>{reset?.over}: {t.circuits.resetText}</>}
        action={t.circuits.reset}
        open={reset !== undefined}
        onClose={() => setReset(undefined)}
        run={async () => {
          if (!reset) return;
          await ask(hub.POST("/v1/circuits/{id}/reset", { params: { path: { id: reset.id } }, body: { recovery_generation: reset.recovery_generation, ...(repaired.trim() ? { repaired: repaired.trim() } : {}) } }));
          await pages.invalidateQueries({ queryKey: ["circuits"] });
        }}
      >
        <Field label={t.circuits.repaired} hint={t.circuits.repairedHint}>{(id, about) => <input id={id} aria-describedby={about} type="text" value={repaired} onChange={(e) => setRepaired(e.target.value)} maxLength={200} />}</Field>
      </Confirm>
    </div>
  );
}

function OpenCircuit({ open, onClose }: { open: boolean; onClose: () => void }) {
  const runners = useQuery({ ...q.runners(), enabled: open });
  const [f, setF] = useState({ scope: "host", runner: "", provider: "", model: "", reason: "", for: "" });
  const text = (k: "provider" | "model" | "reason" | "for", label: string, holder?: string) => (
    <Field label={label}>{(id) => <input id={id} type="text" value={f[k]} placeholder={holder} onChange={(e) => setF({ ...f, [k]: e.target.value })} />}</Field>
  );
  return (
    <Confirm
      title={t.circuits.open}
      text={t.circuits.openText}
      action={t.circuits.open}
      open={open}
      onClose={onClose}
      ready={f.reason.trim() !== ""}
      run={async () => {
        const body: Schemas["OpenCircuit"] = { scope: f.scope, reason: f.reason.trim() };
        for (const k of ["runner", "provider", "model", "for"] as const) if (f[k].trim()) body[k] = f[k].trim();
        await ask(hub.POST("/v1/circuits/open", { body }));
        await pages.invalidateQueries({ queryKey: ["circuits"] });
      }}
    >
      <Field label={t.circuits.scope}>{(id) => <select id={id} value={f.scope} onChange={(e) => setF({ ...f, scope: e.target.value })}>{["host", "provider", "model"].map((s) => <option key={s}>{s}</option>)}</select>}</Field>
      <Field label={t.jobs.runner}>{(id) => <select id={id} value={f.runner} onChange={(e) => setF({ ...f, runner: e.target.value })}><option value="">–</option>{runners.data?.map((r) => <option key={r.id} value={r.name}>{r.name}</option>)}</select>}</Field>
      {f.scope !== "host" && text("provider", t.circuits.provider, "openai")}
      {f.scope === "model" && text("model", t.compose.model)}
      {text("reason", t.job.reason)}
      {text("for", t.acts.for, "2h")}
    </Confirm>
  );
}
