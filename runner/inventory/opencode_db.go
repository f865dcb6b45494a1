package inventory

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"tugline.dev/tugline/shared/fleet"
)

// opencodeDB reads the sessions of an opencode that keeps them in a database,
// HOME/opencode.db: tables session, message and part, whose column data has what was a file
// before.
type opencodeDB struct{ home string }

const (
	ocDatabase = "opencode.db"
	dbTries    = 3 // to read it while it is not being changed
	// maxRowTitle bounds a title in bytes, far beyond what is told of it: no secret is cut in two.
	maxRowTitle = 1 << 10
)

// read does something with the database as it is at one moment. Where it is changed all the
// time what was read last counts.
func (o opencodeDB) read(l *look, do func(*database) error) error {
	f, err := l.open(o.home)
	if err != nil {
		return err
	}
	defer f.close()
	for try := 1; ; try++ {
		d, err := f.database(ocDatabase)
		if errors.Is(err, fs.ErrNotExist) {
			return err
		}
		same := false
		if err == nil {
			err = do(d)
			same = d.same()
			d.close()
		}
		if same || try == dbTries || l.spent() {
			return err
		}
	}
}

func (o opencodeDB) sessions(l *look) (out []candidate, err error) {
	err = o.read(l, func(d *database) error {
		var all []fleet.CLISession
		err := d.all("session", func(r row) {
			if s, ok := o.session(r); ok {
				all = append(all, s)
			}
		})
		slices.SortStableFunc(all, func(a, b fleet.CLISession) int { return b.Used.Compare(a.Used) })
		out = nil
		for i, s := range all {
			if i < fleet.MaxSessions && unnamed(s.Title) && !l.skipped(s.Dir) {
				if t := d.firstSaid(s.ID); t != "" {
					s.Title = t
				}
			}
			out = append(out, candidate{id: s.ID, used: s.Used, file: ocDatabase, read: func(*look) (fleet.CLISession, bool) { return s, true }})
		}
		return err
	})
	return out, err
}

// session gives it as it is told; false: it is none, one of a sub-agent, or one that was put away.
func (opencodeDB) session(r row) (fleet.CLISession, bool) {
	o := ocSession{
		ID: r.col("id").text, Parent: r.col("parent_id").text, Directory: r.col("directory").text, Title: r.col("title").text,
		Time: ocTime{Created: r.col("time_created").num, Updated: r.col("time_updated").num},
	}
	o.Title = strings.Clone(fleet.CutText(o.Title, maxRowTitle)) // or all of a long one stays in memory
	s, ok := o.session()
	var model struct {
		ID string `json:"id"`
	}
	if json.Unmarshal([]byte(r.col("model").text), &model) == nil {
		s.Model = model.ID
	}
	return s, ok && r.col("time_archived").num == 0
}

// unnamed says whether a title is what opencode calls a session that has none yet.
func unnamed(title string) bool { return title == "" || strings.HasPrefix(title, "New session - ") }

// message gives one with its first parts.
func (d *database) message(id int64) (m ocMessage, parts []ocPart, err error) {
	r, err := d.one("message", id)
	if err != nil || json.Unmarshal([]byte(r.col("data").text), &m) != nil {
		return m, nil, err
	}
	m.ID = r.col("id").text
	ids, err := d.with("part", "message_id", m.ID)
	for _, id := range ids[:min(len(ids), maxParts)] {
		r, err := d.one("part", id)
		if err != nil {
			return m, parts, err
		}
		var p ocPart
		if json.Unmarshal([]byte(r.col("data").text), &p) == nil {
			parts = append(parts, p)
		}
	}
	return m, parts, err
}

// firstSaid gives what the user said first in a session, "" where that is not known.
func (d *database) firstSaid(session string) string {
	ids, err := d.with("message", "session_id", session)
	if err != nil || len(ids) == 0 {
		return ""
	}
	m, parts, _ := d.message(ids[0])
	return saidIn(&m, parts)
}

func (o opencodeDB) messages(l *look, c candidate, n int) (out []fleet.CLIMessage, earlier bool) {
	err := o.read(l, func(d *database) error {
		ids, err := d.with("message", "session_id", c.id)
		from := max(len(ids)-n, 0)
		keep := ring{n: n, more: from > 0}
		for _, id := range ids[from:] {
			m, parts, err := d.message(id)
			if err != nil {
				return err
			}
			for _, p := range parts {
				if t, ok := p.message(&m); ok {
					keep.add(t)
				}
			}
		}
		out, earlier = keep.all, keep.more
		return err
	})
	return out, earlier || err != nil
}
