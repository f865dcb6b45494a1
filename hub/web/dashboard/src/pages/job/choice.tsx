import type { Schemas } from "../../api/client";
import type { Job } from "../../api/queries";
import { useParam } from "../../lib/url";
import { t } from "../../text/en";

type Recorded = Schemas["RecordedAttempt"];

export interface Choice {
  all: { turn: number; attempt: Recorded }[];
  turn: number;
  attempt: Recorded | undefined;
  choose: (key: string) => void;
}

/** useAttempt is which attempt a tab shows: the newest that began, or the one of the URL. */
export function useAttempt(job: Job): Choice {
  const [key, choose] = useParam("attempt");
  const all = (job.turns ?? []).flatMap((tu) => (tu.attempts ?? []).filter((a) => a.accepted_at).map((attempt) => ({ turn: tu.n, attempt })));
  const found = all.find((x) => `${x.turn}.${x.attempt.n}` === key) ?? all.at(-1);
  return { all, turn: found?.turn ?? job.turn, attempt: found?.attempt, choose };
}

export function AttemptChoice({ all, turn, attempt, choose }: Choice) {
  if (all.length < 2) return null;
  return (
    <select value={`${turn}.${attempt?.n}`} onChange={(e) => choose(e.target.value)} aria-label={t.attempts.choose}>
      {all.map((x) => (
        <option key={`${x.turn}.${x.attempt.n}`} value={`${x.turn}.${x.attempt.n}`}>
          {t.attempts.of(x.turn, x.attempt.n, x.attempt.runner_name)}
        </option>
      ))}
    </select>
  );
}
