import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { ask, hub, HubError, once, type Schemas } from "../api/client";
import { pages, q } from "../api/queries";
import { addPasskey, may, session, signOut, ways } from "../lib/session";
import { useStore } from "../lib/store";
import { t } from "../text/en";
import { Button, Confirm, Copy, Empty, Facts, Failure, Field, Loading, PageHead, Panel } from "../ui/kit";
import { State } from "../ui/state";
import { Age, Clock, Until } from "../ui/time";

const known = ["default_harness", "model_priority", "alert_webhook", "floor_select", "floor_start", "retry_pause", "release_key"] as const;

export default function Settings() {
  const who = useStore(session);
  if (!who) return null;
  const admin = may(who, "admin");
  return (
    <>
      <PageHead title={t.settings.title} />
      <div className="grid">
        <You />
        {admin && <SignIns />}
      </div>
      <HubSettings admin={admin} />
      {admin && <TokensPanel />}
      <div className="grid">
        <ReleasesPanel />
        <BudgetsPanel />
      </div>
    </>
  );
}

function You() {
  const who = useStore(session)!;
  const w = useQuery({ queryKey: ["ways"], queryFn: () => ways(t.door.noBrowser), staleTime: Infinity });
  const [said, setSaid] = useState<string>();
  const [error, setError] = useState<unknown>();
  const add = async () => {
    setError(undefined);
    try {
      await addPasskey(who.name);
      setSaid(t.settings.passkeyAdded);
    } catch (e) {
      if (!(e instanceof DOMException)) setError(e);
    }
  };
  return (
    <Panel title={t.settings.you} more={<Button small onPress={() => void signOut()}>{t.session.out}</Button>}>
      <div className="stack">
        <Facts items={[[t.settings.name, who.name], [t.settings.role, t.roles[who.role]], [t.settings.ends, <Until key="u" at={who.expires_at} />]]} />
        {w.data?.offered ? (
          <div className="row"><Button onPress={() => void add()}>{t.settings.addPasskey}</Button> <span role="status">{said}</span></div>
        ) : (
          <p className="quiet">{t.settings.noPasskeys} {w.data?.why_not}</p>
        )}
        {error !== undefined && <Failure error={error instanceof HubError ? error : String(error)} />}
      </div>
    </Panel>
  );
}

function SignIns() {
  const list = useQuery(q.signIns());
  const [end, setEnd] = useState<Schemas["SignIn"]>();
  return (
    <Panel title={t.settings.signIns} flush>
      {list.error ? <Failure error={list.error} /> : !list.data ? <Loading /> : list.data.length === 0 ? <Empty title={t.settings.noSignIns} /> : (
        <ul className="lines">
          {list.data.map((s) => (
            <li key={s.id}>
              <span className="grow">{s.name || s.token} <span className="tag">{s.role}</span><small className="quiet">{[s.address, s.agent].filter(Boolean).join(" · ")}</small></span>
              <span className="end"><Age at={s.created_at} ago /></span>
              <Button small onPress={() => setEnd(s)}>{t.settings.endSession}</Button>
            </li>
          ))}
        </ul>
      )}
      <Confirm title={t.settings.endTitle} text={<>{end?.name} {end?.address}</>} action={t.settings.endSession} danger open={end !== undefined} onClose={() => setEnd(undefined)} run={async () => {
        if (end) await ask(hub.DELETE("/v1/sign-ins/{id}", { params: { path: { id: end.id } } }));
        await pages.invalidateQueries({ queryKey: ["sign-ins"] });
      }} />
    </Panel>
  );
}

function HubSettings({ admin }: { admin: boolean }) {
  const status = useQuery(q.status());
  const [edit, setEdit] = useState<string>();
  const [value, setValue] = useState("");
  if (!status.data) return <Panel title={t.settings.hub}><Loading /></Panel>;
  const now = status.data.settings;
  const names = [...new Set<string>([...known, ...Object.keys(now)])];
  return (
    <Panel title={t.settings.hub} flush>
      <div className="table-scroll">
        <table>
          <thead><tr><th>{t.settings.setting}</th><th>{t.settings.value}</th><th>{t.settings.meaning}</th><th><span className="offscreen">{t.circuits.actions}</span></th></tr></thead>
          <tbody>
            {names.map((n) => (
              <tr key={n}>
                <td><code>{n}</code></td>
                <td className="wrap">{now[n] ? <code>{now[n]}</code> : <span className="quiet">{t.settings.unset}</span>}</td>
                <td className="wrap quiet">{t.settings.meanings[n as keyof typeof t.settings.meanings] ?? ""}</td>
                <td>{admin && <Button small onPress={() => { setEdit(n); setValue(now[n] ?? ""); }}>{t.settings.change}</Button>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Confirm title={t.settings.changeTitle(edit ?? "")} text={t.settings.meanings[edit as keyof typeof t.settings.meanings] ?? ""} action={t.save} open={edit !== undefined} onClose={() => setEdit(undefined)} run={async () => {
        if (edit) await ask(hub.PUT("/v1/settings/{name}", { params: { path: { name: edit as (typeof known)[number] } }, body: { value } }));
        await pages.invalidateQueries({ queryKey: ["status"] });
      }}>
        <Field label={t.settings.value} hint={t.settings.emptyUnsets}>{(id, about) => <input id={id} aria-describedby={about} type="text" value={value} onChange={(e) => setValue(e.target.value)} spellCheck={false} />}</Field>
      </Confirm>
    </Panel>
  );
}

function TokensPanel() {
  const tokens = useQuery(q.tokens());
  const [make, setMake] = useState(false);
  const [end, setEnd] = useState<Schemas["Token"]>();
  const [f, setF] = useState<{ name: string; role: Schemas["TokenRequest"]["role"]; ttl: string }>({ name: "", role: "operator", ttl: "" });
  const [made, setMade] = useState<Schemas["Token"]>();
  return (
    <Panel title={t.settings.tokens} more={<Button small onPress={() => setMake(true)}>{t.settings.newToken}</Button>} flush>
      {made?.secret && <p className="panel-body row"><span className="notice tone-ok">{t.settings.secretOnce}</span> <code>{made.secret}</code> <Copy text={made.secret} /></p>}
      {!tokens.data ? <Loading /> : (
        <div className="table-scroll">
          <table>
            <thead><tr><th>{t.settings.name}</th><th>{t.settings.role}</th><th>{t.settings.made}</th><th>{t.settings.ends}</th><th>{t.circuits.state}</th><th><span className="offscreen">{t.circuits.actions}</span></th></tr></thead>
            <tbody>
              {tokens.data.map((k) => (
                <tr key={k.id}>
                  <td title={k.id}>{k.name || k.id}</td>
                  <td>{k.role}</td>
                  <td><Clock at={k.created_at} /></td>
                  <td>{k.expires_at ? <Until at={k.expires_at} /> : <span className="quiet">{t.settings.never}</span>}</td>
                  <td><State state={k.revoked ? "revoked" : "ok"} compact /></td>
                  <td>{!k.revoked && <Button small onPress={() => setEnd(k)}>{t.settings.revoke}</Button>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <Confirm title={t.settings.newToken} text={t.settings.newTokenText} action={t.settings.newToken} open={make} onClose={() => setMake(false)} run={async () => {
        setMade(await ask(hub.POST("/v1/tokens", { params: { header: once() }, body: { role: f.role, ...(f.name ? { name: f.name } : {}), ...(f.ttl ? { ttl: f.ttl } : {}) } })));
        await pages.invalidateQueries({ queryKey: ["tokens"] });
      }}>
        <Field label={t.settings.name}>{(id) => <input id={id} type="text" value={f.name} onChange={(e) => setF({ ...f, name: e.target.value })} />}</Field>
        <Field label={t.settings.role}>{(id) => <select id={id} value={f.role} onChange={(e) => setF({ ...f, role: e.target.value as typeof f.role })}>{["viewer", "operator", "admin"].map((r) => <option key={r}>{r}</option>)}</select>}</Field>
        <Field label={t.settings.ttl}>{(id) => <input id={id} type="text" value={f.ttl} placeholder="720h" onChange={(e) => setF({ ...f, ttl: e.target.value })} />}</Field>
      </Confirm>
      <Confirm title={t.settings.revokeTitle(end?.name || end?.id || "")} text={t.settings.revokeText} action={t.settings.revoke} danger open={end !== undefined} onClose={() => setEnd(undefined)} run={async () => {
        if (end) await ask(hub.DELETE("/v1/tokens/{id}", { params: { path: { id: end.id } } }));
        await pages.invalidateQueries({ queryKey: ["tokens"] });
      }} />
    </Panel>
  );
}

function ReleasesPanel() {
  const releases = useQuery(q.releases());
  return (
    <Panel title={t.settings.releases} flush>
      {!releases.data ? <Loading /> : !releases.data.releases?.length ? (
        <Empty title={t.settings.noReleases}><code>tugline hub release add dist</code></Empty>
      ) : (
        <ul className="lines">
          {releases.data.releases.map((r) => (
            <li key={r.version}>
              <span className="strong">{r.version}</span> <span className="tag">{r.ring}</span>
              <span className="grow">{r.halted ? <span className="bad-text">{r.halted}</span> : r.waits}<small className="quiet">{t.settings.onRunners(r.runners?.length ?? 0)}</small></span>
              <span className="end"><Age at={r.since} ago /></span>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function BudgetsPanel() {
  const budgets = useQuery(q.budgets());
  return (
    <Panel title={t.settings.budgets} flush>
      {!budgets.data ? <Loading /> : budgets.data.length === 0 ? (
        <Empty title={t.settings.noBudgets}><code>tugline budget set automation --max-runs 50 --window 24h</code></Empty>
      ) : (
        <div className="table-scroll">
          <table>
            <thead><tr><th>{t.settings.origin}</th><th className="right">{t.settings.runs}</th><th className="right">{t.settings.tokensSpent}</th><th>{t.settings.window}</th></tr></thead>
            <tbody>
              {budgets.data.map((b) => (
                <tr key={b.origin}>
                  <td>{b.origin}</td>
                  <td className="right">{b.spent.runs}{b.max_runs ? ` / ${b.max_runs}` : ""}</td>
                  <td className="right">{b.spent.tokens}{b.max_tokens ? ` / ${b.max_tokens}` : ""}</td>
                  <td>{b.window} {b.ends && <Until at={b.ends} />}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}
