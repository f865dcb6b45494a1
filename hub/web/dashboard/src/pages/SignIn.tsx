import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { HubError } from "../api/client";
import { signIn, signInWithPasskey, ways } from "../lib/session";
import { t } from "../text/en";
import { Button, Failure, Field } from "../ui/kit";

export function SignIn() {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();

  const w = useQuery({ queryKey: ["ways"], queryFn: () => ways(t.door.noBrowser), staleTime: Infinity });

  const run = async (f: () => Promise<void>) => {
    setBusy(true);
    setError(undefined);
    try {
      await f();
    } catch (e) {
      // Who closes the browser's own dialog knows that he did.
      if (!(e instanceof DOMException)) setError(e instanceof HubError && e.status === 401 ? new HubError(401, e.code, t.door.wrong) : e);
    } finally {
      setBusy(false);
    }
  };

  return (
    <div className="door">
      <main className="door-card">
        <header>
          <img src="/mark.svg" alt="" />
          <h1>{t.door.title}</h1>
          <p className="quiet">{t.door.about}</p>
        </header>
        <form
          onSubmit={(e) => {
            e.preventDefault();
            if (token.trim()) void run(() => signIn(token.trim()));
          }}
        >
          <Field label={t.door.token} hint={<>{t.door.hint} <code>tugline token create --role operator</code></>}>
            {(id, about) => (
              <input id={id} aria-describedby={about} type="password" autoComplete="current-password" value={token} onChange={(e) => setToken(e.target.value)} spellCheck={false} />
            )}
          </Field>
          {error !== undefined && <Failure error={error} />}
          <Button look="primary" type="submit" isDisabled={busy || !token.trim()}>
            {busy ? t.working : t.door.go}
          </Button>
          {w.data && !w.data.offered && w.data.why_not && <p className="field-about">{t.settings.noPasskeys} {w.data.why_not}</p>}
          {w.data?.offered && (
            <>
              <span className="door-or">{t.door.or}</span>
              <Button onPress={() => void run(signInWithPasskey)} isDisabled={busy}>{t.door.passkey}</Button>
            </>
          )}
        </form>
      </main>
    </div>
  );
}
