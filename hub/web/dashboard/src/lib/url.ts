import { useCallback, useEffect, useState } from "react";
import { useSearchParams } from "react-router";

/** useParam keeps one choice in the URL, so that a view can be shared and gone back to. */
export function useParam(name: string, first = ""): [string, (v: string) => void] {
  const [params, set] = useSearchParams();
  const value = params.get(name) ?? first;
  const put = useCallback(
    (v: string) =>
      set(
        (p) => {
          const next = new URLSearchParams(p);
          if (v === first) next.delete(name);
          else next.set(name, v);
          return next;
        },
        { replace: true },
      ),
    [set, name, first],
  );
  return [value, put];
}

/** useSettled follows a value that is being typed once it has stood for a moment. */
export function useSettled(value: string, ms = 250): string {
  const [v, set] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => set(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return v;
}
