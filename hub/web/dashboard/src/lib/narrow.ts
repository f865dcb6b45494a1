import { useSyncExternalStore } from "react";

// The same width at which the style sheet puts rows on two lines.
const query = typeof matchMedia === "undefined" ? undefined : matchMedia("(max-width: 820px)");

export function useNarrow(): boolean {
  return useSyncExternalStore(
    (f) => {
      query?.addEventListener("change", f);
      return () => query?.removeEventListener("change", f);
    },
    () => query?.matches ?? false,
  );
}
