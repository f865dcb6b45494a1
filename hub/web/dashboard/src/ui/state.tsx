import { t } from "../text/en";
import { Icon } from "./icons";
import { Age } from "./time";

type Tone = "ok" | "run" | "wait" | "warn" | "bad" | "lost" | "quiet";

const looks: Record<string, [Tone, string]> = {
  // of a job
  queued: ["wait", "wait"],
  assigned: ["run", "prep"],
  preparing: ["run", "prep"],
  running: ["run", "run"],
  verifying: ["run", "prep"],
  succeeded: ["ok", "ok"],
  failed: ["bad", "bad"],
  needs_review: ["warn", "ask"],
  cancelled: ["quiet", "off"],
  cancelling: ["warn", "stop"],
  blocked: ["warn", "stop"],
  lost: ["lost", "lost"],
  // of an attempt
  finished: ["ok", "ok"],
  declined: ["quiet", "off"],
  returned: ["quiet", "off"],
  withdrawn: ["quiet", "off"],
  abandoned: ["bad", "bad"],
  // of a runner
  online: ["ok", "ok"],
  stale: ["warn", "warn"],
  offline: ["bad", "bad"],
  refused: ["bad", "bad"],
  revoked: ["quiet", "off"],
  cordoned: ["warn", "pause"],
  draining: ["warn", "pause"],
  unknown: ["quiet", "wait"],
  // of a circuit
  open: ["bad", "bad"],
  half_open: ["warn", "prep"],
  closed: ["ok", "ok"],
  // of a machine, a hub node, Docker
  ok: ["ok", "ok"],
  faulty: ["bad", "bad"],
  ready: ["ok", "ok"],
  absent: ["quiet", "off"],
  down: ["bad", "bad"],
  unreachable: ["bad", "bad"],
  disk_full: ["bad", "bad"],
  slow_disk: ["warn", "warn"],
  clock_skew: ["warn", "warn"],
  filling: ["run", "prep"],
  set_back: ["warn", "warn"],
  removed: ["quiet", "off"],
  // of an alert
  recovered: ["ok", "ok"],
};

/** look gives the tone and shape of a state; one that is not known looks quiet. */
export function look(state: string): [Tone, string] {
  return looks[state] ?? ["quiet", "dot"];
}

/** State shows a state by colour, shape and word; its age beside it and what it rests on at hover. */
export function State({ state, since, why, compact }: { state: string; since?: string | number | null; why?: string; compact?: boolean }) {
  const [tone, icon] = look(state);
  return (
    <span className={`state tone-${tone}${compact ? " compact" : ""}`} title={why || undefined}>
      <Icon name={icon} />
      <span className="state-word">{t.states[state as keyof typeof t.states] ?? state.replaceAll("_", " ")}</span>
      {since !== undefined && since !== null && <Age at={since} why={why} />}
    </span>
  );
}
