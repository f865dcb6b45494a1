import { useEffect, useState } from "react";
import { ask, hub, HubError } from "./api/client";
import { asText, journal } from "./lib/journal";
import { may, session } from "./lib/session";
import { useStore } from "./lib/store";
import { t } from "./text/en";
import { Button, Copy, Empty, Sheet } from "./ui/kit";
import { Age } from "./ui/time";

/** JournalSheet lists what went wrong in this tab; an admin can have the hub tell the cause of its own errors. */
export function JournalSheet({ open, onClose }: { open: boolean; onClose: () => void }) {
  const { entries } = useStore(journal);
  const who = useStore(session);
  useEffect(() => {
    if (open) journal.set((j) => ({ ...j, unread: 0 }));
  }, [open, entries]);
  return (
    <Sheet title={t.journal.title} open={open} onClose={onClose} wide>
      <div className="sheet-body">
        {entries.length === 0 ? (
          <Empty title={t.journal.none} />
        ) : (
          <>
            <div className="spread">
              <span className="quiet">{t.journal.about}</span>
              <span className="row">
                <Copy text={() => asText(entries)} label={t.journal.copyAll} />
                <Button small onPress={() => journal.set({ entries: [], unread: 0 })}>{t.journal.clear}</Button>
              </span>
            </div>
            <div className="table-scroll">
              <table>
                <thead>
                  <tr>
                    <th>{t.journal.at}</th>
                    <th>{t.journal.code}</th>
                    <th>{t.journal.text}</th>
                  </tr>
                </thead>
                <tbody>
                  {entries.map((e) => (
                    <tr key={e.n}>
                      <td className="nowrap"><Age at={e.at} ago /> {e.times > 1 && <span className="badge">×{e.times}</span>}</td>
                      <td><code>{e.code}</code></td>
                      <td className="wrap">
                        {e.text}
                        {e.where && <div className="quiet"><code>{e.where}</code></div>}
                        {e.reference && <Reference id={e.reference} admin={may(who, "admin")} />}
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          </>
        )}
      </div>
    </Sheet>
  );
}

function Reference({ id, admin }: { id: string; admin: boolean }) {
  const [cause, setCause] = useState<string>();
  const look = async () => {
    try {
      const [node = "", name = ""] = id.replace(/^urn:tugline:/, "").split("/");
      setCause((await ask(hub.GET("/v1/errors/{node}/{id}", { params: { path: { node, id: name } } }))).cause);
    } catch (e) {
      setCause(e instanceof HubError ? e.message : String(e));
    }
  };
  return (
    <div className="stack">
      <span className="row quiet">
        {t.errors.reference} <code>{id}</code>
        {admin && !cause && <Button small onPress={() => void look()}>{t.journal.cause}</Button>}
      </span>
      {cause && <pre className="out">{cause}</pre>}
    </div>
  );
}
