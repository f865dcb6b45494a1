import { useQuery } from "@tanstack/react-query";
import { useEffect, useState, type ReactNode } from "react";
import { Menu, MenuItem, MenuTrigger, Popover } from "react-aria-components";
import { Link, NavLink, useLocation } from "react-router";
import { q } from "./api/queries";
import { span } from "./lib/format";
import { journal } from "./lib/journal";
import { useNow } from "./lib/now";
import { may, session, signOut } from "./lib/session";
import { useStore } from "./lib/store";
import { theme, type Theme } from "./lib/theme";
import { connection, retry } from "./live/client";
import { JournalSheet } from "./JournalSheet";
import { t } from "./text/en";
import { Icon } from "./ui/icons";
import { Button, ButtonLink } from "./ui/kit";
import { Clock } from "./ui/time";

const places = [
  ["/", "overview", t.nav.overview],
  ["/jobs", "jobs", t.nav.jobs],
  ["/runners", "runners", t.nav.runners],
  ["/circuits", "circuits", t.nav.circuits],
  ["/cluster", "cluster", t.nav.cluster],
  ["/audit", "audit", t.nav.audit],
  ["/settings", "settings", t.nav.settings],
] as const;

export function Shell({ children }: { children: ReactNode }) {
  const who = useStore(session);
  const status = useQuery(q.status());
  const [open, setOpen] = useState(false);
  const [errors, setErrors] = useState(false);
  const here = useLocation();

  useEffect(() => setOpen(false), [here.pathname]);
  useEffect(() => {
    if (!open) return;
    const esc = (e: KeyboardEvent) => e.key === "Escape" && setOpen(false);
    window.addEventListener("keydown", esc);
    return () => window.removeEventListener("keydown", esc);
  }, [open]);

  const badge = (to: string) => {
    if (to === "/circuits" && status.data?.circuits_open) return <span className="badge bad">{status.data.circuits_open}</span>;
    if (to === "/jobs" && status.data?.queued) return <span className="badge" title={t.nav.queued}>{status.data.queued}</span>;
    return null;
  };

  return (
    <div className="shell">
      <a className="skip" href="#content">{t.nav.skip}</a>
      {open && <button className="scrim" aria-label={t.close} onClick={() => setOpen(false)} />}
      <div className={`side${open ? " open" : ""}`} id="side">
        <Link to="/" className="brand">
          <img src="/mark.svg" alt="" /> {t.product}
        </Link>
        <nav aria-label={t.nav.name}>
          <ul>
            {places
              .filter(([to]) => to !== "/audit" || may(who, "admin"))
              .map(([to, icon, name]) => (
                <li key={to}>
                  <NavLink to={to} end={to === "/"}>
                    <Icon name={icon} /> {name} {badge(to)}
                  </NavLink>
                </li>
              ))}
          </ul>
        </nav>
        <div className="side-foot">
          {status.data && (
            <>
              <span title={status.data.cluster}>{status.data.settings.cluster_name ?? t.nav.cluster} · {status.data.version}</span>
              <span title={t.nav.nodeHint}>{t.nav.node} {status.data.node.slice(-6)}</span>
            </>
          )}
        </div>
      </div>
      <div className="main">
        <header className="top">
          <span className="menu-button">
            <Button look="ghost" onPress={() => setOpen(!open)} aria-label={t.nav.open} aria-expanded={open} aria-controls="side">
              <Icon name="menu" />
            </Button>
          </span>
          <Live />
          <span className="top-space" />
          {may(who, "operator") && (
            <ButtonLink look="primary" to="/jobs/new" aria-label={t.nav.newJob}>
              <Icon name="add" /> <span className="hide-narrow">{t.nav.newJob}</span>
            </ButtonLink>
          )}
          <JournalButton open={() => setErrors(true)} />
          <ThemeMenu />
          <WhoMenu />
        </header>
        <Stale />
        <main className="page" id="content" tabIndex={-1}>
          {children}
        </main>
      </div>
      <JournalSheet open={errors} onClose={() => setErrors(false)} />
    </div>
  );
}

function Live() {
  const c = useStore(connection);
  const now = useNow();
  const text =
    c.state === "live" ? t.live.live : c.state === "paused" ? t.live.paused : c.state === "connecting" ? t.live.connecting : c.state === "refused" ? t.live.refused : t.live.waiting(span(Math.max(0, (c.retryAt ?? now) - now)));
  return (
    <span className={`live ${c.state}`} title={c.heard ? t.live.heard(span(now - c.heard)) : undefined}>
      <span className="pulse" aria-hidden />
      <span role="status">{c.state === "waiting" ? <span aria-hidden>{text}</span> : text}</span>
    </span>
  );
}

/** Stale says from when on what is shown may be old, and which other nodes there are. */
function Stale() {
  const c = useStore(connection);
  const now = useNow();
  const members = useQuery({ ...q.members(), enabled: false });
  const bad = c.state === "waiting" || (c.state === "connecting" && now - c.since > 5000) || c.state === "refused";
  if (!bad) return null;
  const others = (members.data?.members ?? []).filter((m) => !m.self && m.url && m.role !== "removed");
  return (
    <div className="stale-banner" role="alert">
      <Icon name="warn" />
      <span>
        {t.live.stale} <Clock at={c.heard ?? c.since} />
      </span>
      <Button small onPress={retry}>{t.live.retry}</Button>
      {others.length > 0 && (
        <span className="banner-links">
          {t.live.others}
          {others.map((m) => (
            <a key={m.id} href={m.url} rel="noreferrer">{m.url.replace(/^https?:\/\//, "")}</a>
          ))}
        </span>
      )}
    </div>
  );
}

function JournalButton({ open }: { open: () => void }) {
  const { unread, entries } = useStore(journal);
  return (
    <Button look="ghost" onPress={open} aria-label={t.journal.button(entries.length, unread)}>
      <Icon name="journal" />
      {unread > 0 && <span className="badge bad">{unread}</span>}
    </Button>
  );
}

function ThemeMenu() {
  const v = useStore(theme);
  return (
    <MenuTrigger>
      <Button look="ghost" aria-label={t.theme.button}>
        <Icon name={v} />
      </Button>
      <Popover>
        <Menu className="menu" aria-label={t.theme.button} selectionMode="single" selectedKeys={[v]} onAction={(k) => theme.set(k as Theme)}>
          {(["auto", "light", "dark"] as const).map((k) => (
            <MenuItem key={k} id={k} className="menu-item" textValue={t.theme[k]}>
              <Icon name={k} /> {t.theme[k]}
            </MenuItem>
          ))}
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}

function WhoMenu() {
  const who = useStore(session);
  if (!who) return null;
  return (
    <MenuTrigger>
      <Button look="ghost" aria-label={t.session.menu(who.name)}>
        <span className="hide-narrow">{who.name || t.session.nobody}</span> <span className="tag">{t.roles[who.role]}</span>
      </Button>
      <Popover>
        <Menu className="menu" aria-label={t.session.menu(who.name)} onAction={(k) => k === "out" && void signOut()}>
          <MenuItem id="settings" className="menu-item" href="/settings" textValue={t.nav.settings}>{t.nav.settings}</MenuItem>
          <MenuItem id="out" className="menu-item" textValue={t.session.out}>{t.session.out}</MenuItem>
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}
