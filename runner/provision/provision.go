// Package provision installs agent CLIs and browsers into a directory of the runner's own, by npm.
// Versions lie beside each other, and a link leads to the one in use: what a running job
// was started with stays as it is.
//
// It guarantees that one asking is carried out once, whatever is killed in the middle;
// that a half-made installation is removed at the next start, and nothing else; and that
// values of credentials are in one file that its owner alone may read, and in no text.
//
// It leaves to others whether an installation may be made, and when.
package provision

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"tugline.dev/tugline/runner/durable"
	"tugline.dev/tugline/shared/fleet"
)

// The states of a record.
const (
	Installs  = "installs"
	Succeeded = "succeeded"
	Failed    = "failed"
)

const (
	recordVersion = 1
	maxRecords    = 2 * fleet.MaxProvisions
	maxFile       = 1 << 20
)

// Record is what is known of one asking.
type Record struct {
	ID        string `json:"id"`
	What      string `json:"what"`
	State     string `json:"state"`
	Installed string `json:"installed,omitempty"` // the version that came
	Class     string `json:"class,omitempty"`     // why it failed, one of fleet.ProvisionClasses
	Detail    string `json:"detail,omitempty"`
}

type recordFile struct {
	Version int      `json:"version"`
	Records []Record `json:"records"` // oldest first
}

// Store is the directory with all that was installed. Its methods may be called from
// many goroutines; one installation is made at a time.
type Store struct {
	dir string

	mu      sync.Mutex
	records []Record
	given   map[string]map[string]string // credentials, by program
}

// Open reads what was installed. Installations that were broken off are noted as failed,
// and what is left of them is removed: no process of theirs may be left.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir, given: map[string]map[string]string{}}
	b, err := readSmall(s.recordFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read what was provisioned: %w", err)
	}
	if err == nil {
		if s.records, err = parseRecords(b); err != nil {
			return nil, fmt.Errorf("read %s: %w", s.recordFile(), err)
		}
	}
	for _, what := range fleet.Provisionable() {
		b, err := readSmall(s.credentialFile(what))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		values, ok := parseCredentials(what, b)
		if err != nil || !ok {
			return nil, fmt.Errorf("%s can't be read; remove it, and have the credentials given anew", s.credentialFile(what)) // the cause could quote a value
		}
		s.given[what] = values
	}
	return s, s.mend()
}

func parseRecords(b []byte) ([]Record, error) {
	var f recordFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, err
	}
	if f.Version != recordVersion {
		return nil, fmt.Errorf("form %d is not known to this version", f.Version)
	}
	for _, r := range f.Records {
		if !isID(r.ID) || !slices.Contains(fleet.Provisionable(), r.What) || !slices.Contains([]string{Installs, Succeeded, Failed}, r.State) {
			return nil, errors.New("a record is out of order")
		}
	}
	return f.Records, nil
}

func parseCredentials(what string, b []byte) (map[string]string, bool) {
	var values map[string]string
	if json.Unmarshal(b, &values) != nil {
		return nil, false
	}
	return values, fleet.CheckProvision(what, "", slices.Sorted(maps.Keys(values)), false) == ""
}

// isID says whether an id is a plain word: it is part of a directory's name.
func isID(id string) bool {
	return id != "" && len(id) <= fleet.MaxProvisionID && !strings.ContainsFunc(id, func(r rune) bool {
		return !('0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || r == '-' || r == '_')
	})
}

// mend ends what an earlier life did not.
func (s *Store) mend() error {
	var failed error
	changed := false
	for i, r := range s.records {
		if r.State != Installs {
			continue
		}
		if err := os.RemoveAll(s.half(r.What, r.ID)); err != nil {
			failed = errors.Join(failed, fmt.Errorf("remove a half-made installation: %w", err))
			continue
		}
		if id, version, _ := strings.Cut(s.stamp(r.What), " "); id == r.ID {
			s.records[i].State, s.records[i].Installed = Succeeded, version
		} else {
			s.records[i].State, s.records[i].Class = Failed, fleet.ProvisionInterrupted
			s.records[i].Detail = "the runner ended in the middle; what was there is in use as before"
		}
		changed = true
	}
	if changed {
		failed = errors.Join(failed, s.save())
	}
	return failed
}

func (s *Store) recordFile() string          { return filepath.Join(s.dir, "record.json") }
func (s *Store) of(what string) string       { return filepath.Join(s.dir, what) }
func (s *Store) half(what, id string) string { return filepath.Join(s.of(what), ".new-"+id) }
func (s *Store) current(what string) string  { return filepath.Join(s.of(what), "current") }
func (s *Store) credentialFile(what string) string {
	return filepath.Join(s.of(what), "credentials.json")
}

// stamp says by which asking the installation in use came, and its version.
func (s *Store) stamp(what string) string {
	b, err := readSmall(filepath.Join(s.current(what), stampFile))
	if err != nil {
		return ""
	}
	return string(b)
}

// Record gives what is known of an asking.
func (s *Store) Record(id string) (Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.records, func(r Record) bool { return r.ID == id })
	if i < 0 {
		return Record{}, false
	}
	return s.records[i], true
}

// Put keeps a record before anything is done that it tells of.
func (s *Store) Put(r Record) error {
	if !isID(r.ID) || !slices.Contains(fleet.Provisionable(), r.What) {
		return fmt.Errorf("an installation of %q: %w", fleet.CutText(r.What, 40), fleet.BadRequest)
	}
	r.Detail = fleet.CutText(r.Detail, fleet.MaxDetail)
	s.mu.Lock()
	defer s.mu.Unlock()
	was := slices.Clone(s.records)
	if i := slices.IndexFunc(s.records, func(o Record) bool { return o.ID == r.ID }); i >= 0 {
		s.records[i] = r
	} else {
		s.records = append(s.records, r)
	}
	s.records = s.records[max(len(s.records)-maxRecords, 0):]
	if err := s.save(); err != nil {
		s.records = was
		return err
	}
	return nil
}

// save writes the records; nobody else changes them meanwhile.
func (s *Store) save() error {
	b, err := json.Marshal(recordFile{recordVersion, s.records})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	return durable.Replace(s.recordFile(), append(b, '\n'), 0o600)
}

// Program gives the program of an installation in use, "" where there is none.
func (s *Store) Program(what string) string {
	p := filepath.Join(s.current(what), programLink)
	if _, err := os.Stat(p); err != nil {
		return ""
	}
	return p
}

// Environ gives the credentials that a hub gave for a program, as NAME=value.
func (s *Store) Environ(what string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.given[what])) {
		out = append(out, name+"="+s.given[what][name])
	}
	return out
}

// keepCredentials puts credentials in the place of those that were given before.
func (s *Store) keepCredentials(what string, values map[string]string) error {
	b, err := json.Marshal(values)
	if err != nil {
		return errors.New("credentials can't be written down") // the cause could quote a value
	}
	if err := durable.Replace(s.credentialFile(what), append(b, '\n'), 0o600); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given[what] = maps.Clone(values)
	return nil
}

func readSmall(file string) ([]byte, error) {
	st, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if st.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", file, st.Size(), maxFile)
	}
	return os.ReadFile(file)
}
