import { lazy, Suspense, useEffect } from "react";
import { RouterProvider } from "react-aria-components";
import { Navigate, Route, Routes, useLocation, useNavigate } from "react-router";
import { onSignedOut } from "./api/client";
import { pages } from "./api/queries";
import { note } from "./lib/journal";
import { look, session } from "./lib/session";
import { useStore } from "./lib/store";
import { applier } from "./live/apply";
import { listen } from "./live/client";
import { SignIn } from "./pages/SignIn";
import { t } from "./text/en";
import { Loading } from "./ui/kit";
import { Shell } from "./Shell";
import { Boundary } from "./ui/boundary";

const Overview = lazy(() => import("./pages/Overview"));
const Jobs = lazy(() => import("./pages/Jobs"));
const Job = lazy(() => import("./pages/Job"));
const NewJob = lazy(() => import("./pages/NewJob"));
const Runners = lazy(() => import("./pages/Runners"));
const Runner = lazy(() => import("./pages/Runner"));
const Circuits = lazy(() => import("./pages/Circuits"));
const Cluster = lazy(() => import("./pages/Cluster"));
const Audit = lazy(() => import("./pages/Audit"));
const Settings = lazy(() => import("./pages/Settings"));
const Nowhere = lazy(() => import("./pages/Nowhere"));

export function App() {
  const who = useStore(session);
  const navigate = useNavigate();
  const here = useLocation();

  useEffect(() => {
    const off = onSignedOut(() => session.set(null));
    const ask = () =>
      void look().catch((e: unknown) => {
        note(String((e as Error).message), "session");
        setTimeout(ask, 2000);
      });
    ask();
    const failed = (e: ErrorEvent) => note(e.message, "page");
    const rejected = (e: PromiseRejectionEvent) => note(String((e.reason as Error | undefined)?.message ?? e.reason), "page");
    window.addEventListener("error", failed);
    window.addEventListener("unhandledrejection", rejected);
    return () => {
      off();
      window.removeEventListener("error", failed);
      window.removeEventListener("unhandledrejection", rejected);
    };
  }, []);

  const signedIn = Boolean(who);
  useEffect(() => {
    if (!signedIn) {
      pages.clear();
      return;
    }
    return listen(applier(pages));
  }, [signedIn]);

  if (who === undefined) return <div className="door" aria-busy="true"><span className="offscreen">{t.loading}</span></div>;
  if (who === null) return <SignIn />;
  return (
    <RouterProvider navigate={(to) => void navigate(to)}>
    <Shell>
      <Boundary key={here.pathname}>
      <Suspense fallback={<Loading rows={5} />}>
        <Routes>
          <Route path="/" element={<Overview />} />
          <Route path="/jobs" element={<Jobs />} />
          <Route path="/jobs/new" element={<NewJob />} />
          <Route path="/jobs/:id" element={<Job />} />
          <Route path="/jobs/:id/:tab" element={<Job />} />
          <Route path="/runners" element={<Runners />} />
          <Route path="/runners/:id" element={<Runner />} />
          <Route path="/circuits" element={<Circuits />} />
          <Route path="/cluster" element={<Cluster />} />
          <Route path="/audit" element={<Audit />} />
          <Route path="/settings" element={<Settings />} />
          <Route path="/hubs" element={<Navigate to="/cluster" replace />} />
          <Route path="/releases" element={<Navigate to="/settings" replace />} />
          <Route path="/index.html" element={<Navigate to="/" replace />} />
          <Route path="*" element={<Nowhere />} />
        </Routes>
      </Suspense>
      </Boundary>
    </Shell>
    </RouterProvider>
  );
}
