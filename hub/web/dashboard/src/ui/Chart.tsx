import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clock } from "../lib/format";
import { theme } from "../lib/theme";
import { useStore } from "../lib/store";
import { t } from "../text/en";

/** Chart draws one figure over time; null is a gap, and stays one. */
export default function Chart({ title, times, values, format, top }: { title: string; times: number[]; values: (number | null)[]; format: (v: number) => string; top?: number }) {
  const box = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState<number | null>(null);
  const look = useStore(theme);
  const known = values.filter((v): v is number => v !== null);
  const last = known.at(-1);
  useEffect(() => {
    const el = box.current!;
    const css = getComputedStyle(el);
    const colour = (name: string) => {
      // Canvas knows nothing of light-dark(): the browser resolves it on an element.
      const probe = document.createElement("i");
      probe.style.color = `var(${name})`;
      el.append(probe);
      const c = getComputedStyle(probe).color;
      probe.remove();
      return c;
    };
    const line = colour("--run");
    const axis = { stroke: colour("--text-3"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: `${Math.round(parseFloat(css.fontSize) * 0.78)}px ${css.fontFamily}` };
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const u = new uPlot(
      {
        width: el.clientWidth || 300,
        height: el.clientHeight || 150,
        cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
        legend: { show: false },
        scales: { x: { time: true }, y: { range: (_, min, max) => [Math.min(0, min), Math.max(top ?? 0, max * 1.08 || 1)] } },
        axes: [{ ...axis, space: 70 }, { ...axis, size: 5 * rem, values: (_, vs) => vs.map((v) => format(v)) }],
        series: [{}, { stroke: line, width: 1.500, fill: colour("--run-soft"), spanGaps: false, points: { show: false } }],
        hooks: { setCursor: [(p) => setAt(p.cursor.idx ?? null)] },
      },
      [times, values],
      el,
    );
    const watch = new ResizeObserver(() => u.setSize({ width: el.clientWidth, height: el.clientHeight }));
    watch.observe(el);
    return () => {
      watch.disconnect();
      u.destroy();
    };
  }, [times, values, format, top, look]);
  const v = at === null ? undefined : values[at];
  return (
    <figure className="chart">
      <h3>
        <span>{title}</span>
        <span className="num">{at !== null && times[at] !== undefined ? `${clock(times[at] * 1000, Date.now())} · ${v === null || v === undefined ? t.charts.gap : format(v)}` : last === undefined ? "–" : format(last)}</span>
      </h3>
      <div className="chart-box" ref={box} role="img" aria-label={known.length ? t.charts.label(title, format(Math.min(...known)), format(Math.max(...known)), format(last!)) : t.charts.nothing(title)} />
    </figure>
  );
}
