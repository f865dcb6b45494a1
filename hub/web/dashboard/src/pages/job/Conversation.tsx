import { useQuery } from "@tanstack/react-query";
import { lazy, memo, Suspense, useMemo, useState } from "react";
import type { Schemas } from "../../api/client";
import { ask, hub, once } from "../../api/client";
import { pages, q, type Job } from "../../api/queries";
import { ended } from "../../api/slim";
import { converse, headline, pretty, unwrapped, type AgentEvent, type Piece } from "../../lib/conversation";
import { useEvents } from "../../lib/events";
import { may, session } from "../../lib/session";
import { useStore } from "../../lib/store";
import { t } from "../../text/en";
import { Icon } from "../../ui/icons";
import { Button, Empty, Failure } from "../../ui/kit";
import { Age } from "../../ui/time";

const Prose = lazy(() => import("../../ui/Markdown"));

export function Conversation({ job }: { job: Job }) {
  const who = useStore(session);
  const turns = job.turns ?? [];
  return (
    <div className="talk">
      {turns.map((turn) => (
        <TurnView key={turn.n} job={job} turn={turn} newest={turn.n === turns.length} />
      ))}
      {job.follow_ups_queued > 0 && (
        <p className="notice tone-wait">
          <Icon name="wait" /> {t.talk.queued(job.follow_ups_queued)} {job.follow_ups_paused}
        </p>
      )}
      {job.kind === "agent" && may(who, "operator") && <FollowUp job={job} />}
    </div>
  );
}

function TurnView({ job, turn, newest }: { job: Job; turn: Schemas["Turn"]; newest: boolean }) {
  const attempts = (turn.attempts ?? []).filter((a) => a.accepted_at);
  const argv = job.spec.argv ?? [];
  return (
    <>
      <div className="bubble">
        <div className="bubble-head">
          <strong>{turn.n === 1 ? job.actor_name || t.talk.somebody : t.talk.followUp(turn.n)}</strong>
          <Age at={turn.created_at} ago />
          {turn.model && <span className="tag">{turn.model}</span>}
        </div>
        {turn.prompt ? <Prompt job={job.id} turn={turn.n} /> : <pre>{argv.join(" ")}</pre>}
      </div>
      {attempts.map((a) => (
        <AttemptTalk key={a.n} job={job} turn={turn.n} attempt={a} alone={attempts.length === 1} newest={newest && a === attempts.at(-1)} />
      ))}
      {attempts.length === 0 && (
        <p className="notice tone-wait">
          <Icon name="wait" /> {job.why || t.talk.notBegun}
        </p>
      )}
    </>
  );
}

function Prompt({ job, turn }: { job: string; turn: number }) {
  const p = useQuery(q.prompt(job, turn));
  if (p.error) return <p className="quiet">{p.error.message}</p>;
  return <pre>{p.data ?? t.loading}</pre>;
}

function AttemptTalk({ job, turn, attempt: a, alone, newest }: { job: Job; turn: number; attempt: Schemas["RecordedAttempt"]; alone: boolean; newest: boolean }) {
  const live = !a.log.sealed;
  const { events, done, error } = useEvents({ job: job.id, turn, attempt: a.n }, live);
  const pieces = useMemo(() => converse(events, `${turn}.${a.n}.`), [events, turn, a.n]);
  const [all, setAll] = useState(false);
  const most = 200; // pieces that are drawn before somebody asks for the older
  const shown = all ? pieces : pieces.slice(-most);
  return (
    <>
      {!alone && <h3>{t.talk.attempt(a.n, a.runner_name)}</h3>}
      {shown.length < pieces.length && (
        <span className="fold">
          <Button small onPress={() => setAll(true)}>{t.talk.older(pieces.length - shown.length)}</Button>
        </span>
      )}
      {shown.map((p) => (
        <PieceView key={p.key} piece={p} newest={newest} />
      ))}
      {error !== undefined && <Failure error={error} />}
      {pieces.length === 0 && done && <Empty title={job.kind === "agent" ? t.talk.silent : t.talk.command}>{job.kind !== "agent" && t.talk.commandText}</Empty>}
      {newest && !ended(job.state) && (
        <p className="quiet row" role="status">
          <Icon name="run" /> {t.talk.working}
        </p>
      )}
    </>
  );
}

const PieceView = memo(function PieceView({ piece: p, newest }: { piece: Piece; newest: boolean }) {
  switch (p.kind) {
    case "prose":
      return (
        <div className="prose">
          <Suspense fallback={<p>{p.event.text}</p>}>
            <Prose text={p.event.text ?? ""} />
          </Suspense>
        </div>
      );
    case "reasoning":
      return (
        <div className="prose reasoning">
          <Suspense fallback={<p>{p.event.text}</p>}>
            <Prose text={p.event.text ?? ""} />
          </Suspense>
        </div>
      );
    case "plan":
      return (
        <ul className="tools" aria-label={t.talk.plan}>
          {(p.event.items ?? []).map((i, n) => (
            <li key={n} className="row tool-plan">
              <Icon name={i.completed ? "ok" : "wait"} label={i.completed ? t.talk.planDone : t.talk.planOpen} /> {i.text}
            </li>
          ))}
        </ul>
      );
    case "error":
      return (
        <p className="notice tone-bad">
          <Icon name="bad" /> {p.event.text}
        </p>
      );
    case "tools":
      return <ToolRows calls={p.calls} newest={newest} />;
  }
}, (a, b) => a.newest === b.newest && JSON.stringify(a.piece) === JSON.stringify(b.piece));

function ToolRows({ calls, newest }: { calls: { key: string; event: AgentEvent; open: boolean }[]; newest: boolean }) {
  const [all, setAll] = useState(false);
  const few = 6; // rows of one run of calls before they are folded together
  const shown = all || calls.length <= few + 2 ? calls : calls.slice(-few);
  return (
    <ul className="tools">
      {shown.length < calls.length && (
        <li>
          <Button look="ghost" small onPress={() => setAll(true)}>{t.talk.olderCalls(calls.length - shown.length)}</Button>
        </li>
      )}
      {shown.map((c) => (
        <li key={c.key}>
          <ToolRow event={c.event} open={newest && c.open} />
        </li>
      ))}
    </ul>
  );
}

function ToolRow({ event: e, open }: { event: AgentEvent; open: boolean }) {
  // A row that somebody opened or closed stays so; the others follow what is newest.
  const [mine, setMine] = useState<boolean>();
  const shown = mine ?? open;
  const failed = e.status === "failed" || (e.exit_code !== undefined && e.exit_code !== 0);
  return (
    <details className="tool" open={shown}>
      <summary
        onClick={(ev) => {
          ev.preventDefault();
          setMine(!shown);
        }}
      >
        <Icon name="right" />
        <span className="tool-name">{t.tools[e.type as keyof typeof t.tools] ?? e.type}</span>
        <code className="cut">{headline(e)}</code>
        {e.status === "in_progress" && <span className="quiet">{t.talk.runs}</span>}
        {failed && <span className="bad-text nowrap">{e.exit_code !== undefined ? t.talk.exit(e.exit_code) : t.talk.failed}</span>}
      </summary>
      {shown && (
        <div className="tool-body">
          {e.command && unwrapped(e.command).includes("\n") && <pre className="out">{unwrapped(e.command)}</pre>}
          {e.changes && e.changes.length > 1 && (
            <ul>
              {e.changes.map((c) => (
                <li key={c.path}><span className="tag">{c.kind}</span> <code>{c.path}</code></li>
              ))}
            </ul>
          )}
          {e.arguments !== undefined && <pre className="out">{pretty(e.arguments)}</pre>}
          {/* A box that scrolls must be reachable by keys. */}
          {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
          {e.output ? <pre className="out" tabIndex={0} role="region" aria-label={t.talk.output}>{e.output}</pre> : null}
          {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
          {e.result !== undefined && <pre className="out" tabIndex={0} role="region" aria-label={t.talk.result}>{pretty(e.result)}</pre>}
          {e.changes?.length === 1 && <span className="quiet">{e.changes[0]!.kind}</span>}
          {!e.output && e.result === undefined && e.arguments === undefined && !e.changes && <span className="quiet">{t.talk.noOutput}</span>}
        </div>
      )}
    </details>
  );
}

function FollowUp({ job }: { job: Job }) {
  const [text, setText] = useState("");
  const [fresh, setFresh] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const send = async () => {
    if (!text.trim() || busy) return;
    setBusy(true);
    setError(undefined);
    try {
      await ask(hub.POST("/v1/jobs/{id}/follow-ups", { params: { path: { id: job.id }, header: once() }, body: { prompt: text, ...(fresh ? { fresh } : {}) } }));
      setText("");
      await pages.invalidateQueries({ queryKey: ["job", job.id] });
    } catch (e) {
      setError(e);
    } finally {
      setBusy(false);
    }
  };
  return (
    <form
      className="composer"
      onSubmit={(e) => {
        e.preventDefault();
        void send();
      }}
    >
      <textarea
        rows={2}
        value={text}
        onChange={(e) => setText(e.target.value)}
        onKeyDown={(e) => {
          if (e.key === "Enter" && (e.metaKey || e.ctrlKey)) void send();
        }}
        placeholder={ended(job.state) ? t.talk.placeholder : t.talk.placeholderLater}
        aria-label={t.talk.box}
      />
      {error !== undefined && <Failure error={error} />}
      <div className="spread">
        <label className="check quiet">
          <input type="checkbox" checked={fresh} onChange={(e) => setFresh(e.target.checked)} /> {t.talk.fresh}
        </label>
        <Button look="primary" type="submit" isDisabled={busy || !text.trim()}>{busy ? t.working : t.talk.send}</Button>
      </div>
    </form>
  );
}
