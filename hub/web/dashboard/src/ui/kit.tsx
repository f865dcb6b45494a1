import { useId, useState, type ReactNode } from "react";
import { Button as AriaButton, Dialog, Heading, Modal, ModalOverlay, type ButtonProps } from "react-aria-components";
import { Link, type LinkProps } from "react-router";
import { HubError } from "../api/client";
import { t } from "../text/en";
import { Icon } from "./icons";

type Look = "plain" | "primary" | "danger" | "ghost";

export function Button({ look = "plain", small, ...rest }: ButtonProps & { look?: Look; small?: boolean }) {
  return <AriaButton {...rest} className={`button ${look}${small ? " small" : ""}`} />;
}

export function ButtonLink({ look = "plain", ...rest }: LinkProps & { look?: Look }) {
  return <Link {...rest} className={`button ${look}`} />;
}

export function Panel({ title, more, children, flush, className }: { title?: ReactNode; more?: ReactNode; children: ReactNode; flush?: boolean; className?: string }) {
  const id = useId();
  return (
    <section className={`panel${flush ? " flush" : ""}${className ? ` ${className}` : ""}`} aria-labelledby={title ? id : undefined}>
      {(title || more) && (
        <header className="panel-head">
          {title && <h2 id={id}>{title}</h2>}
          {more && <div className="panel-more">{more}</div>}
        </header>
      )}
      <div className="panel-body">{children}</div>
    </section>
  );
}

export function PageHead({ title, sub, actions, crumb }: { title: ReactNode; sub?: ReactNode; actions?: ReactNode; crumb?: ReactNode }) {
  return (
    <div className="page-head">
      <div className="page-title">
        {crumb && <nav className="crumb" aria-label={t.nav.crumb}>{crumb}</nav>}
        <h1>{title}</h1>
        {sub && <div className="page-sub">{sub}</div>}
      </div>
      {actions && <div className="page-actions">{actions}</div>}
    </div>
  );
}

/** Empty says that there is nothing, and what to do next. */
export function Empty({ title, children, action }: { title: string; children?: ReactNode; action?: ReactNode }) {
  return (
    <div className="empty">
      <p className="empty-title">{title}</p>
      {children && <div className="empty-text">{children}</div>}
      {action}
    </div>
  );
}

export function Loading({ rows = 3 }: { rows?: number }) {
  return (
    <div className="loading" role="status" aria-label={t.loading}>
      {Array.from({ length: rows }, (_, i) => (
        <div className="bone" key={i} />
      ))}
    </div>
  );
}

/** Failure is shown where something should be that the hub did not give. */
export function Failure({ error, again }: { error: unknown; again?: () => void }) {
  const e = error instanceof HubError ? error : undefined;
  return (
    <div className="failure" role="alert">
      <Icon name="warn" />
      <div>
        <p>{e ? e.message : String(error)}</p>
        {e?.instance && (
          <p className="quiet">
            {t.errors.reference} <code>{e.instance}</code>
          </p>
        )}
        {again && (
          <Button small onPress={again}>
            {t.again}
          </Button>
        )}
      </div>
    </div>
  );
}

/** Meter shows how much of something is taken, with words for those who can't see it. */
export function Meter({ value, of, label, tone }: { value: number; of: number; label: string; tone?: "ok" | "warn" | "bad" }) {
  const share = of > 0 ? Math.min(1, Math.max(0, value / of)) : 0;
  return (
    <span className={`meter tone-${tone ?? "run"}`} role="meter" aria-valuemin={0} aria-valuemax={of} aria-valuenow={value} aria-label={label} title={label}>
      <span className="meter-fill" style={{ inlineSize: `${share * 100}%` }} />
    </span>
  );
}

/** Places draws slots one by one: taken, free, and not offered. */
export function Places({ used, offered, of, label }: { used: number; offered: number; of: number; label: string }) {
  const n = Math.max(of, used, offered);
  return (
    <span className="places" role="img" aria-label={label} title={label}>
      {Array.from({ length: Math.min(n, 16) }, (_, i) => (
        <i key={i} className={i < used ? "used" : i < offered ? "free" : "none"} />
      ))}
    </span>
  );
}

export function copyText(text: string): Promise<void> {
  if (navigator.clipboard && isSecureContext) return navigator.clipboard.writeText(text);
  // A page over plain HTTP has no clipboard of its own.
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "offscreen";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done ? Promise.resolve() : Promise.reject(new Error("copy"));
}

export function Copy({ text, label, bare }: { text: string | (() => string); label?: string; bare?: boolean }) {
  const [done, setDone] = useState(false);
  const press = () => {
    void copyText(typeof text === "function" ? text() : text).then(() => {
      setDone(true);
      setTimeout(() => setDone(false), 1500);
    });
  };
  return (
    <Button look="ghost" small onPress={press} aria-label={bare ? (label ?? t.copy) : undefined}>
      <Icon name={done ? "check" : "copy"} />
      {!bare && (done ? t.copied : (label ?? t.copy))}
      <span className="offscreen" role="status">{done ? t.copied : ""}</span>
    </Button>
  );
}

/** Id shows a long name that is mostly copied. */
export function Id({ id, text }: { id: string; text?: string }) {
  return (
    <span className="id">
      <code title={id}>{text ?? id}</code>
      <Copy text={id} label={t.copyOf(id)} bare />
    </span>
  );
}

/** Sheet is a dialog over the page. */
export function Sheet({ title, open, onClose, children, wide }: { title: string; open: boolean; onClose: () => void; children: ReactNode; wide?: boolean }) {
  return (
    <ModalOverlay className="overlay" isOpen={open} onOpenChange={(o) => !o && onClose()} isDismissable>
      <Modal className={`sheet${wide ? " wide" : ""}`}>
        <Dialog className="sheet-dialog">
          <div className="sheet-head">
            <Heading slot="title">{title}</Heading>
            <Button look="ghost" small onPress={onClose} aria-label={t.close}>
              <Icon name="close" />
            </Button>
          </div>
          {children}
        </Dialog>
      </Modal>
    </ModalOverlay>
  );
}

/** Confirm asks before something that can't be taken back, and shows what the hub said against it. */
export function Confirm({ title, text, action, danger, open, onClose, run, children, ready = true }: {
  title: string;
  text: ReactNode;
  action: string;
  danger?: boolean;
  open: boolean;
  onClose: () => void;
  run: () => Promise<unknown>;
  children?: ReactNode;
  ready?: boolean;
}) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const go = async () => {
    setBusy(true);
    setError(undefined);
    try {
      await run();
      onClose();
    } catch (e) {
      setError(e);
    } finally {
      setBusy(false);
    }
  };
  const close = () => {
    setError(undefined);
    onClose();
  };
  return (
    <Sheet title={title} open={open} onClose={close}>
      <form
        className="sheet-body"
        onSubmit={(e) => {
          e.preventDefault();
          if (ready && !busy) void go();
        }}
      >
        <div className="sheet-text">{text}</div>
        {children}
        {error !== undefined && <Failure error={error} />}
        <div className="sheet-actions">
          <Button onPress={close}>{t.cancelDialog}</Button>
          <Button look={danger ? "danger" : "primary"} type="submit" isDisabled={busy || !ready}>
            {busy ? t.working : action}
          </Button>
        </div>
      </form>
    </Sheet>
  );
}

export function Field({ label, hint, children, error }: { label: string; hint?: ReactNode; error?: string; children: (id: string, describedBy: string | undefined) => ReactNode }) {
  const id = useId();
  const about = hint || error ? `${id}-about` : undefined;
  return (
    <div className={`field${error ? " wrong" : ""}`}>
      <label htmlFor={id}>{label}</label>
      {children(id, about)}
      {about && (
        <div className="field-about" id={about}>
          {error ?? hint}
        </div>
      )}
    </div>
  );
}

/** Facts is a list of names and what they are. */
export function Facts({ items }: { items: [string, ReactNode][] }) {
  return (
    <dl className="facts">
      {items
        .filter(([, v]) => v !== undefined && v !== null && v !== "" && v !== false)
        .map(([k, v]) => (
          <div key={k}>
            <dt>{k}</dt>
            <dd>{v}</dd>
          </div>
        ))}
    </dl>
  );
}
