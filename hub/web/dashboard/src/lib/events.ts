import { useEffect, useState } from "react";
import { HubError, problem, request } from "../api/client";
import { backoff } from "../live/feed";
import type { AgentEvent } from "./conversation";
import { lines } from "./lines";
import { address, type Place } from "./output";

export interface Events {
  events: AgentEvent[];
  done: boolean;
  error?: unknown;
}

const none: Events = { events: [], done: false };

/** useEvents has what an agent reported in one attempt, and goes on while it does. */
export function useEvents(p: Place, live: boolean, wanted = true): Events {
  const [state, set] = useState<Events>(none);
  const { job, turn, attempt } = p;
  useEffect(() => {
    set(none);
    if (!wanted) return;
    const abort = new AbortController();
    let all: AgentEvent[] = [];
    let fresh: AgentEvent[] = [];
    let at = 0;
    let tries = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let show: ReturnType<typeof setTimeout> | undefined;
    const publish = (done: boolean, error?: unknown) => {
      show = undefined;
      if (fresh.length) all = all.concat(fresh);
      fresh = [];
      set({ events: all, done, error });
    };
    const cut = () =>
      lines<AgentEvent>((e) => {
        fresh.push(e);
        show ??= setTimeout(() => publish(false), 100);
      });
    const go = async () => {
      const take = cut();
      const from = at;
      try {
        const r = await request(address({ job, turn, attempt }, { stream: "events", follow: live, from }), { signal: abort.signal });
        if (!r.ok) throw await problem(r);
        const reader = r.body!.getReader();
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          tries = 0;
          at += take(value);
        }
        clearTimeout(show);
        publish(true);
      } catch (e) {
        if (abort.signal.aborted) return;
        const final = e instanceof HubError && e.status >= 400 && e.status < 500;
        clearTimeout(show);
        publish(final, final ? e : undefined);
        if (!final) timer = setTimeout(() => void go(), backoff(tries++, Math.random()));
      }
    };
    void go();
    return () => {
      abort.abort();
      clearTimeout(timer);
      clearTimeout(show);
    };
    // A stream that was followed to its end is not read again because it has ended.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [job, turn, attempt, wanted]);
  return state;
}
