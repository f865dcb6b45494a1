import { useSyncExternalStore } from "react";

/** Store holds one value and tells who listens when it is another. */
export interface Store<T> {
  get(): T;
  set(next: T | ((was: T) => T)): void;
  listen(f: () => void): () => void;
}

export function store<T>(first: T): Store<T> {
  let value = first;
  const listeners = new Set<() => void>();
  return {
    get: () => value,
    set(next) {
      const v = typeof next === "function" ? (next as (was: T) => T)(value) : next;
      if (Object.is(v, value)) return;
      value = v;
      listeners.forEach((f) => f());
    },
    listen(f) {
      listeners.add(f);
      return () => listeners.delete(f);
    },
  };
}

export function useStore<T>(s: Store<T>): T {
  return useSyncExternalStore(s.listen, s.get);
}
