"""Makes opencode.db.gz and opencode.db-wal.gz beside it: a database with the tables of opencode 1.18, with
pages so small that trees are deep and rows run over. Of the log beside it the last transaction is not committed."""
import gzip, json, os, shutil, sqlite3, sys, tempfile

here = os.path.dirname(os.path.abspath(__file__))
tmp = tempfile.mkdtemp()
name = os.path.join(tmp, "opencode.db")
db = sqlite3.connect(name, isolation_level=None)
db.executescript("""
PRAGMA page_size = 512; PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = 10;
CREATE TABLE `session` (`id` text PRIMARY KEY, `project_id` text NOT NULL, `workspace_id` text, `parent_id` text,
  `slug` text NOT NULL, `directory` text NOT NULL, `path` text, `title` text NOT NULL, `version` text NOT NULL, `cost` real DEFAULT 0 NOT NULL,
  `model` text, `time_created` integer NOT NULL, `time_updated` integer NOT NULL, `time_archived` integer,
  CONSTRAINT `fk_session_project` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE);
CREATE TABLE `message` (`id` text PRIMARY KEY, `session_id` text NOT NULL, `time_created` integer NOT NULL,
  `time_updated` integer NOT NULL, `data` text NOT NULL);
CREATE TABLE `part` (`id` text PRIMARY KEY, `message_id` text NOT NULL, `session_id` text NOT NULL,
  `time_created` integer NOT NULL, `time_updated` integer NOT NULL, `data` text NOT NULL);
CREATE INDEX `message_session_time_created_id_idx` ON `message` (`session_id`,`time_created`,`id`);
CREATE INDEX `part_message_id_id_idx` ON `part` (`message_id`,`id`);
CREATE INDEX `session_parent_idx` ON `session` (`parent_id`);
""")
t0 = 1796000000000


def session(n, title, dir="/home/dev/open", parent=None, archived=None):
    db.execute("INSERT INTO session VALUES (?,'global',NULL,?,'slug',?,'',?,'1.18.33',0.5,?,?,?,?)",
               (f"ses_{n:04d}", parent, dir, title, '{"id":"fake-model","providerID":"scripted"}', t0, t0 + n * 1000, archived))


def message(s, n, role, *parts):
    m = f"msg_{s:04d}x{n:04d}"
    db.execute("INSERT INTO message VALUES (?,?,?,?,?)", (m, f"ses_{s:04d}", t0 + n, t0 + n,
               json.dumps({"role": role, "time": {"created": t0 + n}, "modelID": "fake-model"})))
    for i, p in enumerate(parts):
        db.execute("INSERT INTO part VALUES (?,?,?,?,?,?)", (f"prt_{s:04d}x{n:04d}x{i}", m, f"ses_{s:04d}", t0 + n, t0 + n, json.dumps(p)))


def text(s):
    return {"type": "text", "text": s}


for n in range(1, 231):
    session(n, "New session - 2026-11-30T00:00:00.000Z" if n % 2 else f"title {n}")
    message(n, 1, "user", text(f"question {n}"))
session(300, "of a sub-agent", parent="ses_0001")
session(301, "put away", archived=t0)
session(302, "no directory", dir="relative")
for n in range(2, 150):
    message(7, n, "assistant" if n % 2 == 0 else "user", {"type": "step-start"}, text(f"word {n} " + "x" * (n * 5)),
            {"type": "tool", "tool": "bash", "state": {"input": {"command": f"ls {n}"}, "output": "never told"}})
message(7, 400, "user", text("much " + "y" * (9 << 17)), text("after it"))
db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
session(231, "only in the log")
message(231, 1, "user", text("of the log"))
db.execute("UPDATE session SET title = 'changed in the log' WHERE id = 'ses_0230'")
db.execute("BEGIN")
for n in range(400, 500):
    session(n, "never committed")
for f in ("opencode.db", "opencode.db-wal"):
    with open(os.path.join(tmp, f), "rb") as src, open(os.path.join(here, f + ".gz"), "wb") as raw:
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as out:
            shutil.copyfileobj(src, out)
db.execute("ROLLBACK")
db.close()
shutil.rmtree(tmp)
