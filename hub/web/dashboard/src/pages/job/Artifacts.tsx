import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import type { Schemas } from "../../api/client";
import { problem, request } from "../../api/client";
import { q, type Job } from "../../api/queries";
import { bytes, sha } from "../../lib/format";
import { t } from "../../text/en";
import { Empty, Failure, Loading, Panel, Sheet } from "../../ui/kit";

type Artifact = Schemas["Artifact"];

const pictures: Record<string, string> = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", svg: "image/svg+xml", avif: "image/avif" };
const largest = 20 << 20; // bytes of a picture that is shown by itself

function picture(a: Artifact): string | undefined {
  return pictures[a.name.split(".").pop()?.toLowerCase() ?? ""];
}

function address(job: string, a: Artifact): string {
  return `/v1/jobs/${job}/artifacts/${encodeURIComponent(a.name)}?turn=${a.turn}&attempt=${a.attempt}`;
}

export function Artifacts({ job }: { job: Job }) {
  const list = useQuery(q.artifacts(job.id));
  if (list.isPending) return <Loading />;
  if (list.error) return <Failure error={list.error} again={() => void list.refetch()} />;
  if (list.data.length === 0)
    return (
      <Panel>
        <Empty title={t.artifacts.none}>
          <p>{t.artifacts.noneText}</p>
          <code>$TUGLINE_ARTIFACTS</code>
        </Empty>
      </Panel>
    );
  const shots = list.data.filter((a) => picture(a) && a.stored && a.size <= largest);
  return (
    <div className="stack">
      {shots.length > 0 && (
        <Panel title={t.artifacts.pictures} flush>
          <div className="shots">
            {shots.map((a) => <Shot key={`${a.turn}.${a.attempt}.${a.name}`} job={job.id} artifact={a} />)}
          </div>
        </Panel>
      )}
      <Panel title={t.artifacts.title} flush>
        <div className="table-scroll">
          <table>
            <thead>
              <tr>
                <th>{t.artifacts.name}</th>
                <th className="right">{t.artifacts.size}</th>
                <th>{t.artifacts.type}</th>
                <th>{t.artifacts.from}</th>
                <th>{t.artifacts.digest}</th>
              </tr>
            </thead>
            <tbody>
              {list.data.map((a) => (
                <tr key={`${a.turn}.${a.attempt}.${a.name}`}>
                  <td className="wrap">{a.stored ? <a href={address(job.id, a)} download={a.name}>{a.name}</a> : <>{a.name} <span className="quiet">{t.artifacts.away}</span></>}</td>
                  <td className="right nowrap">{bytes(a.size)}</td>
                  <td>{a.type}</td>
                  <td className="nowrap">{t.attempts.short(a.turn, a.attempt)}</td>
                  <td><code title={a.sha256}>{sha(a.sha256)}</code></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Panel>
    </div>
  );
}

/** Shot shows a picture from bytes of the page's own: the hub gives a job's files only as downloads. */
function Shot({ job, artifact: a }: { job: string; artifact: Artifact }) {
  const [url, setUrl] = useState<string>();
  const [error, setError] = useState<unknown>();
  const [open, setOpen] = useState(false);
  useEffect(() => {
    const abort = new AbortController();
    let made: string | undefined;
    void (async () => {
      try {
        const r = await request(address(job, a), { signal: abort.signal });
        if (!r.ok) throw await problem(r);
        made = URL.createObjectURL(new Blob([await r.arrayBuffer()], { type: picture(a) }));
        setUrl(made);
      } catch (e) {
        if (!abort.signal.aborted) setError(e);
      }
    })();
    return () => {
      abort.abort();
      if (made) URL.revokeObjectURL(made);
    };
  }, [job, a]);
  if (error !== undefined) return <Failure error={error} />;
  return (
    <>
      <button className="shot" type="button" onClick={() => setOpen(true)}>
        {url ? <img src={url} alt={a.name} /> : <span className="quiet">{t.loading}</span>}
        <span>{a.name}</span>
      </button>
      <Sheet title={a.name} open={open} onClose={() => setOpen(false)} wide>
        <div className="sheet-body">{url && <img className="shot-full" src={url} alt={a.name} />}</div>
      </Sheet>
    </>
  );
}
