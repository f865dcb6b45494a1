/** AgentEvent is one line of what an agent's CLI reported, as the hub records it. */
export interface AgentEvent {
  type: string;
  id?: string;
  turn?: string;
  status?: string;
  at?: string;
  level?: string;
  text?: string;
  command?: string;
  exit_code?: number;
  output?: string;
  changes?: { path: string; kind: string }[];
  server?: string;
  tool?: string;
  arguments?: unknown;
  result?: unknown;
  query?: string;
  items?: { text: string; completed?: boolean; status?: string }[];
  usage?: { input_tokens: number; output_tokens: number; cached_input_tokens?: number; cost_usd?: number };
  raw?: unknown;
  // of the outcome, which is the last line
  class?: string;
  detail?: string;
  model?: string;
}

export type Piece =
  | { kind: "prose"; key: string; event: AgentEvent }
  | { kind: "reasoning"; key: string; event: AgentEvent }
  | { kind: "plan"; key: string; event: AgentEvent }
  | { kind: "error"; key: string; event: AgentEvent }
  | { kind: "tools"; key: string; calls: { key: string; event: AgentEvent; open: boolean }[] };

const tools = new Set(["command_execution", "file_change", "mcp_tool_call", "dynamic_tool_call", "web_search"]);
const openOnes = 2; // tool calls that are shown whole: the newest

/** settled gives each item once, as it is now, in the place where it began. */
export function settled(events: AgentEvent[]): AgentEvent[] {
  const at = new Map<string, number>();
  const out: AgentEvent[] = [];
  for (const e of events) {
    const key = e.id ? `${e.turn ?? ""}/${e.type}/${e.id}` : "";
    const was = key ? at.get(key) : undefined;
    if (was !== undefined) out[was] = { ...out[was], ...e };
    else {
      if (key) at.set(key, out.length);
      out.push(e);
    }
  }
  return out;
}

/** converse makes of an agent's events what a person reads, oldest first. */
export function converse(events: AgentEvent[], prefix = ""): Piece[] {
  const pieces: Piece[] = [];
  const calls: { open: boolean }[] = [];
  let plan = -1;
  settled(events).forEach((event, i) => {
    const key = `${prefix}${i}`;
    if (tools.has(event.type)) {
      const call = { key, event, open: false };
      calls.push(call);
      const last = pieces.at(-1);
      if (last?.kind === "tools") last.calls.push(call);
      else pieces.push({ kind: "tools", key, calls: [call] });
    } else if (event.type === "agent_message" && event.text?.trim()) {
      pieces.push({ kind: "prose", key, event });
    } else if (event.type === "reasoning" && event.text?.trim()) {
      pieces.push({ kind: "reasoning", key, event });
    } else if (event.type === "todo") {
      // A plan that is told again is the same plan, further on.
      if (plan >= 0) pieces.splice(plan, 1);
      plan = pieces.length;
      pieces.push({ kind: "plan", key, event });
    } else if (event.type === "error" || (event.type === "log" && event.level === "error")) {
      pieces.push({ kind: "error", key, event });
    }
  });
  for (const c of calls.slice(-openOnes)) c.open = true;
  return pieces;
}

/** headline is the one line that stands for a tool call while it is folded. */
export function headline(e: AgentEvent): string {
  switch (e.type) {
    case "command_execution":
      return unwrapped(e.command ?? "");
    case "file_change":
      return (e.changes ?? []).map((c) => c.path).join(", ");
    case "mcp_tool_call":
      return [e.server, e.tool].filter(Boolean).join(" · ");
    case "web_search":
      return e.query ?? "";
    default:
      return [e.tool, e.query ?? e.text ?? brief(e.arguments)].filter(Boolean).join(" ");
  }
}

/** unwrapped takes the shell off a command that an agent ran. */
export function unwrapped(command: string): string {
  const m = /^(?:\/\S*\/)?(?:ba|z|)sh -l?c '([\s\S]*)'$/.exec(command);
  return m ? m[1]!.replaceAll("'\\''", "'") : command;
}

function brief(v: unknown): string {
  if (v === undefined || v === null) return "";
  const s = typeof v === "string" ? v : JSON.stringify(v);
  return s.length > 120 ? `${s.slice(0, 120)}…` : s;
}

/** pretty writes what a tool was given or gave. */
export function pretty(v: unknown): string {
  return typeof v === "string" ? v : JSON.stringify(v, null, 2);
}
