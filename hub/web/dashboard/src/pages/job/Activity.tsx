import { useMemo, useState } from "react";
import type { Job } from "../../api/queries";
import { headline, pretty, type AgentEvent } from "../../lib/conversation";
import { useEvents } from "../../lib/events";
import { t } from "../../text/en";
import { Empty, Failure, Panel } from "../../ui/kit";
import { State } from "../../ui/state";
import { Clock } from "../../ui/time";
import { AttemptChoice, useAttempt } from "./choice";

interface Line {
  at: string;
  type: string;
  text: string;
  more?: string;
  state?: string;
}

function agentLine(e: AgentEvent): Line {
  const { type, at, ...rest } = e;
  return { at: at ?? "", type, text: headline(e) || e.text || e.detail || e.class || "", more: pretty(rest), state: e.status };
}

/** moments are what the hub itself recorded of a job, as lines. */
export function moments(job: Job): Line[] {
  const out: Line[] = [];
  const add = (at: string | null | undefined, type: string, text: string, more?: string) => at && out.push({ at, type, text, more });
  for (const turn of job.turns ?? []) {
    add(turn.created_at, "turn", t.activity.turn(turn.n));
    for (const a of turn.attempts ?? []) {
      add(a.assigned_at, "assigned", t.activity.to(a.runner_name), a.fence);
      add(a.accepted_at, "accepted", a.runner_name);
      add(a.started_at, "started", a.harness ?? job.harness);
      add(a.finished_at, "finished", [a.exit?.reason, a.exit ? t.talk.exit(a.exit.code) : "", a.detail].filter(Boolean).join(" · "));
    }
    for (const tr of turn.transitions ?? []) add(tr.at, "transition", `${tr.from.harness}${tr.from.model ? `:${tr.from.model}` : ""} → ${tr.to.harness}${tr.to.model ? `:${tr.to.model}` : ""}`, tr.detail);
    add(turn.ended_at, "ended", turn.state);
  }
  add(job.cancel_requested_at, "cancel", t.activity.cancel);
  return out;
}

export function Activity({ job }: { job: Job }) {
  const choice = useAttempt(job);
  const [type, setType] = useState("");
  const a = choice.attempt;
  const { events, error } = useEvents({ job: job.id, turn: choice.turn, attempt: a?.n ?? 0 }, Boolean(a && !a.log.sealed), Boolean(a));
  const lines = useMemo(() => [...moments(job), ...events.map(agentLine)].sort((x, y) => (x.at < y.at ? -1 : x.at > y.at ? 1 : 0)), [job, events]);
  const types = [...new Set(lines.map((l) => l.type))];
  const shown = type ? lines.filter((l) => l.type === type) : lines;
  const most = 2000; // lines that are drawn
  return (
    <Panel
      title={t.activity.title}
      more={
        <>
          <AttemptChoice {...choice} />
          <select value={type} onChange={(e) => setType(e.target.value)} aria-label={t.activity.type}>
            <option value="">{t.activity.every}</option>
            {types.map((x) => <option key={x} value={x}>{x.replaceAll("_", " ")}</option>)}
          </select>
        </>
      }
      flush
    >
      {error !== undefined && <Failure error={error} />}
      {shown.length === 0 ? (
        <Empty title={t.activity.none} />
      ) : (
        <ol>
          {shown.slice(-most).map((l, i) => (
            <li className="event-row" key={i}>
              <Clock at={l.at} />
              <span className="row"><span className="tag">{l.type.replaceAll("_", " ")}</span></span>
              {l.more && l.more !== "{}" ? (
                <details>
                  <summary>{l.text || t.activity.details} {l.state === "failed" && <State state="failed" compact />}</summary>
                  <pre className="out">{l.more}</pre>
                </details>
              ) : (
                <span>{l.text}</span>
              )}
            </li>
          ))}
        </ol>
      )}
    </Panel>
  );
}
