import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Diff, Hunk, parseDiff } from "react-diff-view";
import "react-diff-view/style/index.css";
import { problem, request } from "../../api/client";
import { q, type Job } from "../../api/queries";
import { bytes, count } from "../../lib/format";
import { useNarrow } from "../../lib/narrow";
import { t } from "../../text/en";
import { Icon } from "../../ui/icons";
import { Button, Empty, Failure, Loading, Panel } from "../../ui/kit";

type File = ReturnType<typeof parseDiff>[number];

const most = 8 << 20; // bytes of a patch that is drawn
const long = 1500; // changed lines of a file that is folded at first

function path(f: File): string {
  return f.type === "delete" ? f.oldPath : f.type === "rename" ? `${f.oldPath} → ${f.newPath}` : f.newPath;
}

function totals(f: File) {
  let plus = 0;
  let minus = 0;
  for (const h of f.hunks) for (const c of h.changes) if (c.type === "insert") plus++;
    else if (c.type === "delete") minus++;
  return { plus, minus };
}

export default function Changes({ job }: { job: Job }) {
  const artifacts = useQuery(q.artifacts(job.id));
  const patches = (artifacts.data ?? []).filter((a) => a.name === "patch");
  const [chosen, choose] = useState<string>();
  const a = patches.find((p) => `${p.turn}.${p.attempt}` === chosen) ?? patches.at(-1);
  const url = a ? `/v1/jobs/${job.id}/artifacts/patch?turn=${a.turn}&attempt=${a.attempt}` : "";
  const patch = useQuery({
    queryKey: ["patch", job.id, a?.sha256],
    enabled: Boolean(a?.stored) && (a?.size ?? 0) <= most,
    staleTime: Infinity,
    queryFn: async () => {
      const r = await request(url);
      if (!r.ok) throw await problem(r);
      return r.text();
    },
  });
  const narrow = useNarrow();
  const [split, setSplit] = useState(true);
  const files = useMemo(() => (patch.data ? parseDiff(patch.data, { nearbySequences: "zip" }) : []), [patch.data]);

  if (artifacts.isPending) return <Loading />;
  if (artifacts.error) return <Failure error={artifacts.error} />;
  if (!a) return <Panel><Empty title={t.changes.none}>{(job.evidence as Job["evidence"] | null)?.closure ?? t.changes.noneText}</Empty></Panel>;
  const stat = (job.evidence as Job["evidence"] | null)?.stat ?? { files: 0, insertions: 0, deletions: 0 };
  return (
    <div className="stack">
      <Panel
        title={t.changes.title}
        more={
          <>
            {patches.length > 1 && (
              <select value={`${a.turn}.${a.attempt}`} onChange={(e) => choose(e.target.value)} aria-label={t.attempts.choose}>
                {patches.map((p) => <option key={`${p.turn}.${p.attempt}`} value={`${p.turn}.${p.attempt}`}>{t.attempts.short(p.turn, p.attempt)}</option>)}
              </select>
            )}
            {!narrow && <Button small onPress={() => setSplit(!split)}>{split ? t.changes.unified : t.changes.split}</Button>}
            <a className="button small" href={url} download={`${job.id}.patch`}><Icon name="download" /> {t.changes.download} ({bytes(a.size)})</a>
          </>
        }
        flush
      >
        {a.size > most ? (
          <Empty title={t.changes.large}>{t.changes.largeText}</Empty>
        ) : patch.isPending && a.stored ? (
          <Loading />
        ) : patch.error || !a.stored ? (
          <Failure error={patch.error ?? t.changes.gone} />
        ) : (
          <div className="table-scroll">
            <table>
              <thead>
                <tr>
                  <th>{t.changes.files(files.length || stat.files)}</th>
                  <th className="right"><span className="plus">+{count(stat.insertions)}</span> <span className="minus">−{count(stat.deletions)}</span></th>
                </tr>
              </thead>
              <tbody>
                {files.map((f, i) => {
                  const n = totals(f);
                  return (
                    <tr key={i}>
                      <td><a href={`#file-${i}`}><code>{path(f)}</code></a> {f.type !== "modify" && <span className="tag">{t.changes.kinds[f.type]}</span>}</td>
                      <td className="right"><span className="plus">+{n.plus}</span> <span className="minus">−{n.minus}</span></td>
                    </tr>
                  );
                })}
              </tbody>
            </table>
          </div>
        )}
      </Panel>
      {files.map((f, i) => <FileDiff key={i} n={i} file={f} split={split && !narrow} />)}
    </div>
  );
}

function FileDiff({ n, file, split }: { n: number; file: File; split: boolean }) {
  const { plus, minus } = totals(file);
  const [open, setOpen] = useState(plus + minus <= long && n < 40);
  return (
    <details className="diff-file" id={`file-${n}`} open={open} onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>
        <span>{path(file)}</span>
        <span className="top-space" />
        <span className="plus">+{plus}</span> <span className="minus">−{minus}</span>
      </summary>
      {open &&
        (file.hunks.length === 0 ? (
          <p className="panel-body quiet">{file.isBinary ? t.changes.binary : t.changes.noLines}</p>
        ) : (
          // A box that scrolls must be reachable by keys.
          // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
          <div className="diff-scroll" tabIndex={0} role="region" aria-label={path(file)}>
            <Diff viewType={split ? "split" : "unified"} diffType={file.type} hunks={file.hunks}>
              {(hunks) => hunks.map((h) => <Hunk key={h.content} hunk={h} />)}
            </Diff>
          </div>
        ))}
    </details>
  );
}
