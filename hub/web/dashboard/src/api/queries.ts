import { infiniteQueryOptions, QueryClient, queryOptions } from "@tanstack/react-query";
import { ask, hub, HubError, problem, request, type Schemas } from "./client";
import { slim } from "./slim";

/** pages is the cache of all that the page has asked for. */
export const pages = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 15_000,
      retry: (n, e) => n < 2 && !(e instanceof HubError && e.status >= 400 && e.status < 500),
      refetchOnWindowFocus: true,
      refetchOnReconnect: true,
    },
  },
});

// What the hub tells by events is asked for once; presence, ages and samples are not
// told, and are asked for again while somebody looks.
const presence = 10_000;
const slowly = 30_000;

export const q = {
  status: () => queryOptions({ queryKey: ["status"], queryFn: () => ask(hub.GET("/v1/status")), refetchInterval: presence }),
  overview: () => queryOptions({ queryKey: ["overview"], queryFn: () => ask(hub.GET("/v1/overview")), refetchInterval: presence }),
  runners: () =>
    queryOptions({
      queryKey: ["runners"],
      queryFn: async () => (await ask(hub.GET("/v1/runners"))).runners ?? [],
      refetchInterval: 60_000, // the feed tells who is heard
    }),
  runner: (id: string) =>
    queryOptions({
      queryKey: ["runner", id],
      queryFn: () => ask(hub.GET("/v1/runners/{id}", { params: { path: { id } } })),
      refetchInterval: presence,
    }),
  health: (id: string, window: "1h" | "24h") =>
    queryOptions({
      queryKey: ["health", id, window],
      queryFn: () => ask(hub.GET("/v1/runners/{id}/health", { params: { path: { id }, query: { window } } })),
      refetchInterval: window === "1h" ? 20_000 : 60_000,
    }),
  sessions: (id: string) =>
    queryOptions({
      queryKey: ["sessions", id],
      queryFn: () => ask(hub.GET("/v1/runners/{id}/sessions", { params: { path: { id }, query: {} } })),
    }),
  members: () => queryOptions({ queryKey: ["members"], queryFn: () => ask(hub.GET("/v1/members")), refetchInterval: presence }),
  circuits: (all: boolean) =>
    queryOptions({
      queryKey: ["circuits", all],
      queryFn: async () => (await ask(hub.GET("/v1/circuits", { params: { query: { all } } }))).circuits ?? [],
      refetchInterval: slowly,
    }),
  alerts: (runner?: string) =>
    queryOptions({
      queryKey: ["alerts", runner ?? ""],
      queryFn: async () => (await ask(hub.GET("/v1/alerts", { params: { query: { runner, limit: 200 } } }))).alerts ?? [],
      refetchInterval: slowly,
    }),
  releases: () => queryOptions({ queryKey: ["releases"], queryFn: () => ask(hub.GET("/v1/releases")), refetchInterval: slowly }),
  budgets: () => queryOptions({ queryKey: ["budgets"], queryFn: async () => (await ask(hub.GET("/v1/budgets"))).budgets ?? [] }),
  tokens: () => queryOptions({ queryKey: ["tokens"], queryFn: async () => (await ask(hub.GET("/v1/tokens"))).tokens ?? [] }),
  keys: () => queryOptions({ queryKey: ["keys"], queryFn: () => ask(hub.GET("/v1/keys")) }),
  orphans: () => queryOptions({ queryKey: ["orphans"], queryFn: () => ask(hub.GET("/v1/orphans")), refetchInterval: 60_000 }),
  job: (id: string) => queryOptions({ queryKey: ["job", id], queryFn: () => ask(hub.GET("/v1/jobs/{id}", { params: { path: { id } } })) }),
  prompt: (id: string, turn: number) =>
    queryOptions({
      queryKey: ["prompt", id, turn],
      staleTime: Infinity,
      queryFn: async () => {
        const r = await request(`/v1/jobs/${encodeURIComponent(id)}/prompt?turn=${turn}`);
        if (!r.ok) throw await problem(r);
        return r.text();
      },
    }),
  explain: (id: string) =>
    queryOptions({
      queryKey: ["explain", id],
      queryFn: () => ask(hub.GET("/v1/jobs/{id}/explain", { params: { path: { id } } })),
      refetchInterval: presence,
    }),
  artifacts: (id: string) =>
    queryOptions({
      queryKey: ["artifacts", id],
      queryFn: async () => (await ask(hub.GET("/v1/jobs/{id}/artifacts", { params: { path: { id } } }))).artifacts ?? [],
    }),
  jobs: (f: { state?: string; active?: boolean; runner?: string; harness?: string; q?: string; limit?: number }) =>
    infiniteQueryOptions({
      queryKey: ["jobs", f],
      initialPageParam: undefined as string | undefined,
      queryFn: async ({ pageParam }) => {
        const r = await ask(hub.GET("/v1/jobs", { params: { query: { limit: 200, ...f, before: pageParam } } }));
        return { jobs: (r.jobs ?? []).map(slim), next: r.next };
      },
      getNextPageParam: (last) => last.next || undefined,
    }),
  audit: (f: { actor?: string; command?: string; subject?: string; since?: string }) =>
    infiniteQueryOptions({
      queryKey: ["audit", f],
      initialPageParam: undefined as number | undefined,
      queryFn: async ({ pageParam }) => {
        const r = await ask(hub.GET("/v1/audit", { params: { query: { ...f, limit: 200, before: pageParam } } }));
        return { records: r.records ?? [], next: r.next };
      },
      getNextPageParam: (last) => last.next || undefined,
    }),
  signIns: () => queryOptions({ queryKey: ["sign-ins"], queryFn: async () => (await ask(hub.GET("/v1/sign-ins"))).sign_ins ?? [] }),
};

export type Job = Schemas["Job"];
export type Runner = Schemas["Runner"];
