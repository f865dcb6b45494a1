import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, type ReactNode } from "react";

/**
 * VList draws the rows of a long list that are in sight. Rows have one height each, so
 * that nothing moves while more is loaded.
 */
export function VList<T>({ items, height, label, row, keyOf, onEnd, total }: {
  items: T[];
  height: number; // rem of a row
  label: string;
  row: (item: T, index: number) => ReactNode;
  keyOf: (item: T) => string;
  onEnd?: () => void;
  total?: number; // where more are to be loaded, -1
}) {
  const box = useRef<HTMLDivElement>(null);
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize) || 16;
  const v = useVirtualizer({
    count: items.length,
    getScrollElement: () => box.current,
    estimateSize: () => Math.round(height * rem),
    overscan: 12,
    getItemKey: (i) => keyOf(items[i]!),
  });
  const rows = v.getVirtualItems();
  const last = rows.at(-1)?.index ?? -1;
  useEffect(() => {
    if (last >= items.length - 40) onEnd?.();
  }, [last, items.length, onEnd]);
  useEffect(() => v.measure(), [height, v]);
  return (
    // A box that scrolls must be reachable by keys.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div className="vlist" ref={box} style={{ blockSize: `min(${v.getTotalSize()}px, var(--most))` }} role="list" aria-label={label} tabIndex={0}>
      <div className="vlist-inner" style={{ blockSize: `${v.getTotalSize()}px` }} role="presentation">
        {rows.map((r) => (
          <div key={r.key} role="listitem" aria-posinset={r.index + 1} aria-setsize={total ?? items.length}>
            <div className="vslot" style={{ position: "absolute", insetInline: 0, insetBlockStart: 0, blockSize: `${r.size}px`, transform: `translateY(${r.start}px)` }}>
              {row(items[r.index]!, r.index)}
            </div>
          </div>
        ))}
      </div>
    </div>
  );
}
