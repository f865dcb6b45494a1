// Fails where the first page has become too heavy: what index.html loads, and what
// that imports at once, gzipped.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const limit = 350 * 1024;
const dist = new URL("../dist/", import.meta.url);
const manifest = JSON.parse(readFileSync(new URL(".vite/manifest.json", dist), "utf8"));

const files = new Set(["index.html"]);
const visit = (key) => {
  const chunk = manifest[key];
  if (!chunk || files.has(chunk.file)) return;
  files.add(chunk.file);
  for (const css of chunk.css ?? []) files.add(css);
  for (const next of chunk.imports ?? []) visit(next);
};
visit("index.html");
// The page people land on belongs to the first view though it is a chunk of its own.
visit("src/pages/Overview.tsx");

let total = 0;
for (const f of files) {
  const size = gzipSync(readFileSync(new URL(f, dist)), { level: 9 }).length;
  total += size;
  console.log(`${(size / 1024).toFixed(1).padStart(8)} KiB  ${f}`);
}
console.log(`${(total / 1024).toFixed(1).padStart(8)} KiB  first page, gzip; at most ${limit / 1024} KiB`);
if (total > limit) {
  console.error("the first page is too heavy: load what it does not show at once lazily");
  process.exit(1);
}
