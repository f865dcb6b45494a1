import { store, useStore } from "./store";

// One clock for every age on the page: a thousand rows make one timer. It stands
// while the page is hidden, and is right again at once when it is seen.
const ticks = store(Date.now());

function tick() {
  ticks.set(Date.now());
}

if (typeof document !== "undefined") {
  setInterval(() => {
    if (!document.hidden) tick();
  }, 1000);
  document.addEventListener("visibilitychange", tick);
}

export function useNow(): number {
  return useStore(ticks);
}
