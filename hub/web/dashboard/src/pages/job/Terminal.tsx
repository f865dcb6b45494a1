import { FitAddon } from "@xterm/addon-fit";
import { Terminal as XTerm } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { useCallback, useEffect, useRef, useState } from "react";
import { bytes } from "../../lib/format";
import type { Frame } from "../../lib/frames";
import { address, follow, pane, read, type Place } from "../../lib/output";
import { t } from "../../text/en";
import { Button, Failure } from "../../ui/kit";

/**
 * quietDocument is the page's document for the terminal, which writes style elements and
 * attributes: the content security policy has neither, so they become sheets and
 * properties, which say the same.
 */
function quietDocument(changed: () => void): Document {
  const styles = new Set<HTMLElement>();
  const create = document.createElement.bind(document) as (name: string) => HTMLElement;
  const made = (name: string): HTMLElement => {
    if (name === "style") {
      const el: HTMLElement = create("template");
      styles.add(el);
      new MutationObserver(changed).observe(el, { childList: true, characterData: true, subtree: true });
      return el;
    }
    const el = create(name);
    if (name === "span") {
      const set = el.setAttribute.bind(el);
      el.setAttribute = (k: string, v: string) => {
        if (k === "style") el.style.cssText = v;
        else set(k, v);
      };
    }
    return el;
  };
  return new Proxy(document, {
    get(target, key) {
      if (key === "createElement") return made;
      if (key === "terminalStyles") return styles;
      const v: unknown = Reflect.get(target, key);
      return typeof v === "function" ? (v as (...a: unknown[]) => unknown).bind(target) : v;
    },
  });
}

const dim = (text: string) => `\r\n\x1b[2m[${text}]\x1b[0m\r\n`;

function markText(f: Frame): string {
  try {
    const m = JSON.parse(new TextDecoder().decode(f.payload)) as { dropped_bytes: number; reason: string };
    return t.term.mark(m.reason.replaceAll("_", " "), bytes(m.dropped_bytes));
  } catch {
    return t.term.mark("?", "?");
  }
}

export default function Terminal({ place, size, sealed }: { place: Place; size: number; sealed: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const term = useRef<XTerm | undefined>(undefined);
  const work = useRef<AbortController | undefined>(undefined);
  const [span, setSpan] = useState({ start: 0, end: 0 });
  const [at, setAt] = useState<number>();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const [tailing, setTailing] = useState(false);
  const { job, turn, attempt } = place;

  useEffect(() => {
    const sheet = new CSSStyleSheet();
    const css = getComputedStyle(document.documentElement);
    const doc = quietDocument(() => {
      const styles = (doc as unknown as { terminalStyles: Set<HTMLElement> }).terminalStyles;
      sheet.replaceSync([...styles].map((s) => s.textContent).join("\n"));
    });
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
    const x = new XTerm({
      convertEol: true,
      disableStdin: true,
      cursorInactiveStyle: "none",
      cursorStyle: "bar",
      fontFamily: css.getPropertyValue("--mono"),
      fontSize: Math.round(parseFloat(css.fontSize) * 0.9),
      scrollback: 50_000,
      documentOverride: doc,
      theme: { background: "#0f1419", foreground: "#dfe5ea", cursor: "#0f1419", selectionBackground: "#2f5a58" },
    });
    const fit = new FitAddon();
    x.loadAddon(fit);
    // Its scroll bar asks the page's own document, whatever it was given.
    document.createElement = doc.createElement;
    try {
      x.open(box.current!);
    } finally {
      delete (document as Partial<Document>).createElement;
    }
    fit.fit();
    term.current = x;
    const watch = new ResizeObserver(() => fit.fit());
    watch.observe(box.current!);
    return () => {
      work.current?.abort();
      watch.disconnect();
      x.dispose();
      term.current = undefined;
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => s !== sheet);
    };
  }, []);

  const write = useCallback((frames: Frame[]) => {
    for (const f of frames) term.current?.write(f.kind === "mark" ? dim(markText(f)) : f.payload);
  }, []);

  const show = useCallback(
    async (from: number, where: "top" | "bottom", tail: boolean) => {
      work.current?.abort();
      const abort = new AbortController();
      work.current = abort;
      setBusy(true);
      setError(undefined);
      setAt(undefined);
      try {
        const got = await read({ job, turn, attempt }, from, abort.signal);
        if (abort.signal.aborted || !term.current) return;
        term.current.reset();
        write(got.frames);
        term.current.write("", () => (where === "top" ? term.current?.scrollToTop() : term.current?.scrollToBottom()));
        setSpan({ start: got.start, end: got.end });
        setTailing(tail);
        setBusy(false);
        if (!tail) return;
        await follow({ job, turn, attempt }, got.end, abort.signal, (frames, end) => {
          write(frames);
          // What has left the scroll back is before the pane again.
          setSpan((was) => ({ start: Math.max(was.start, end - 2 * pane), end }));
        });
      } catch (e) {
        if (!abort.signal.aborted) setError(e);
      } finally {
        if (work.current === abort) setBusy(false);
      }
    },
    [job, turn, attempt, write],
  );

  const first = useRef({ size, sealed });
  useEffect(() => {
    const { size: n, sealed: whole } = first.current;
    void show(Math.max(0, n - pane), "bottom", !whole);
  }, [show]);

  const whole = Math.max(size, span.end);
  const small = whole <= pane;
  return (
    <div className="panel flush">
      <div className="term-bar">
        {!small && (
          <>
            <Button small onPress={() => void show(0, "top", false)} isDisabled={busy || span.start === 0}>{t.term.start}</Button>
            <Button small onPress={() => void show(Math.max(0, span.start - pane), "bottom", false)} isDisabled={busy || span.start === 0}>{t.term.earlier}</Button>
            <input
              type="range"
              min={0}
              max={Math.max(0, whole - pane)}
              step={64 << 10}
              value={at ?? Math.min(span.start, Math.max(0, whole - pane))}
              onChange={(e) => setAt(Number(e.target.value))}
              onPointerUp={() => at !== undefined && void show(at, "top", false)}
              onKeyUp={() => at !== undefined && void show(at, "top", false)}
              aria-label={t.term.position}
              aria-valuetext={t.term.span(bytes(at ?? span.start), bytes(whole))}
            />
            <Button small onPress={() => void show(span.end, "top", false)} isDisabled={busy || span.end >= whole}>{t.term.later}</Button>
            <Button small onPress={() => void show(Math.max(0, whole - pane), "bottom", !sealed)} isDisabled={busy}>{t.term.end}</Button>
          </>
        )}
        <span className="quiet num" role="status">
          {small ? bytes(whole) : t.term.part(bytes(at ?? span.start), bytes(span.end), bytes(whole))}
          {tailing && !sealed && ` · ${t.term.follows}`}
        </span>
        <span className="top-space" />
        <a className="button ghost small" href={address({ job, turn, attempt }, {})} download={`${job}-${turn}-${attempt}.log`}>{t.term.download}</a>
      </div>
      {error !== undefined && <Failure error={error} again={() => void show(span.start, "top", !sealed)} />}
      <div className="term" ref={box} role="region" aria-label={t.term.label} data-from={span.start} data-to={span.end} />
    </div>
  );
}
