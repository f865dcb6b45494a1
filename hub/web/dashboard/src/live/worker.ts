/// <reference lib="webworker" />
import { Audience, surroundings, type Ask } from "./browser";
import { Feed } from "./feed";

// One of these serves every tab of a browser: however many are open, the hub has
// one stream to fill.
const scope = self as unknown as SharedWorkerGlobalScope;

const feed = new Feed(surroundings, (told) => audience.all().forEach((p) => p.postMessage(told)));
const audience = new Audience<MessagePort>(
  surroundings,
  () => {
    feed.start();
    feed.resume();
  },
  () => feed.pause(),
);

scope.onconnect = (e) => {
  const port = e.ports[0];
  if (!port) return;
  port.onmessage = (m: MessageEvent<Ask>) => {
    audience.hear(port, m.data.ask);
    if (m.data.ask === "retry" || (m.data.ask === "hello" && feed.current().state === "refused")) feed.retry();
    if (m.data.ask === "hello") port.postMessage({ kind: "status", status: feed.current() });
  };
  port.start();
};

setInterval(() => audience.look(), 60_000);
