package attempt

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"tugline.dev/tugline/runner/journal"
)

// CredentialCommand is the hidden subcommand that git runs as its credential helper.
const CredentialCommand = "git-credential"

const (
	credentialFileVar = "TUGLINE_CREDENTIAL_FILE" // answers from the owner's store, for the runner's own git
	credentialDirVar  = "TUGLINE_CREDENTIAL_DIR"  // where an agent's helper drops its questions
	credentialPoll    = 100 * time.Millisecond
	credentialWait    = 30 * time.Second
	maxQuestion       = 8 << 10
)

// Credential is an account at a git host.
type Credential struct {
	Username string `yaml:"username" json:"username"`
	Password string `yaml:"password" json:"password"`
}

// LoadCredentials reads the owner's git-credentials.yaml: host → account. A missing
// file is none; one that others may read is refused.
func LoadCredentials(file string) (map[string]Credential, error) {
	st, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) || file == "" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read git credentials: %w", err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s may be read by others; run: chmod 600 %s", file, file)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read git credentials: %w", err)
	}
	var all map[string]Credential
	if err := yaml.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("read %s: it must map each host to username and password", file)
	}
	return all, nil
}

// question is what git asks a helper: the attributes that we use of it.
type question struct {
	Protocol string `json:"protocol"`
	Host     string `json:"host"`
	Path     string `json:"path,omitempty"`
}

func (q question) remote() string {
	return (&url.URL{Scheme: q.Protocol, Host: q.Host, Path: "/" + strings.TrimPrefix(q.Path, "/")}).String()
}

func helperCommand(self string) string {
	return "!'" + strings.ReplaceAll(self, "'", `'\''`) + "' " + CredentialCommand
}

// credentialEnv makes git in a job ask our helper and no other.
func (a *Attempt) credentialEnv() map[string]string {
	return map[string]string{
		"GIT_CONFIG_COUNT": "3",
		"GIT_CONFIG_KEY_0": "credential.helper", "GIT_CONFIG_VALUE_0": "",
		"GIT_CONFIG_KEY_1": "credential.helper", "GIT_CONFIG_VALUE_1": helperCommand(a.host.Self),
		"GIT_CONFIG_KEY_2": "credential.useHttpPath", "GIT_CONFIG_VALUE_2": "true",
		"GIT_TERMINAL_PROMPT": "0",
		credentialDirVar:      a.credentialDir(),
	}
}

// credentialNames are variables of these that look like keys by their names.
var credentialNames = []string{"GIT_CONFIG_KEY_0", "GIT_CONFIG_KEY_1", "GIT_CONFIG_KEY_2"}

func (a *Attempt) credentialDir() string { return filepath.Join(a.scratchDir(), "git") }

// serveCredentials answers the questions of an agent that pushes by itself, each
// with a permit of its own: an attempt without the authority gets no password.
func (a *Attempt) serveCredentials(ctx context.Context) {
	if a.host.Policy().Push != "agent" || a.asg.Spec.Repo == nil {
		return
	}
	dir := a.credentialDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		a.log.Warn("credential questions can't be served", "err", err)
		return
	}
	tick := time.NewTicker(credentialPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if id, ok := strings.CutPrefix(e.Name(), "ask-"); ok && e.Type().IsRegular() {
				a.answer(ctx, dir, id)
			}
		}
	}
}

func (a *Attempt) answer(ctx context.Context, dir, id string) {
	b, err := readSmall(filepath.Join(dir, "ask-"+id))
	_ = os.Remove(filepath.Join(dir, "ask-"+id))
	var q question
	if err != nil || json.Unmarshal(b, &q) != nil || q.Protocol != "https" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, credentialWait)
	defer cancel()
	var c Credential
	if err := a.permitSoon(ctx, journal.Push{Remote: q.remote()}); err != nil {
		a.log.Info("git credentials refused", "host", q.Host, "err", err)
	} else if all, err := LoadCredentials(a.host.CredentialFile); err != nil {
		a.log.Warn("git credentials can't be read", "err", err)
	} else {
		c = all[q.Host]
	}
	out, err := json.Marshal(c)
	if err != nil {
		return
	}
	tmp := filepath.Join(dir, "tmp-"+id)
	if os.WriteFile(tmp, out, 0o600) == nil {
		_ = os.Rename(tmp, filepath.Join(dir, "answer-"+id))
	}
}

// hiddenCredentials are the passwords that an agent may get to see.
func (a *Attempt) hiddenCredentials() []string {
	all, err := LoadCredentials(a.host.CredentialFile)
	if err != nil {
		return nil
	}
	var out []string
	for _, c := range all {
		if len(c.Password) >= minMaskedSecret {
			out = append(out, c.Password)
		}
	}
	slices.Sort(out)
	return out
}

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxQuestion))
}

// GitCredential is the credential helper: it reads git's question and prints the
// answer, or nothing where there is none. It gives the exit status.
func GitCredential(verb string, in io.Reader, out io.Writer) int {
	if verb != "get" {
		return 0 // nothing is ever stored or erased
	}
	var q question
	for s := bufio.NewScanner(io.LimitReader(in, maxQuestion)); s.Scan(); {
		switch k, v, _ := strings.Cut(s.Text(), "="); k {
		case "protocol":
			q.Protocol = v
		case "host":
			q.Host = v
		case "path":
			q.Path = v
		}
	}
	c, err := ask(q)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tugline: no git credentials for", q.Host+":", err)
		return 1
	}
	if c.Password != "" && !strings.ContainsAny(c.Username+c.Password, "\n\x00") {
		fmt.Fprintf(out, "username=%s\npassword=%s\n", c.Username, c.Password)
	}
	return 0
}

func ask(q question) (Credential, error) {
	if file := os.Getenv(credentialFileVar); file != "" {
		all, err := LoadCredentials(file)
		return all[q.Host], err
	}
	dir := os.Getenv(credentialDirVar)
	if dir == "" {
		return Credential{}, errors.New("this is not a job of a runner")
	}
	var unique [8]byte
	if _, err := rand.Read(unique[:]); err != nil {
		return Credential{}, err
	}
	id := hex.EncodeToString(unique[:])
	b, err := json.Marshal(q)
	if err != nil {
		return Credential{}, err
	}
	tmp := filepath.Join(dir, "new-"+id)
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return Credential{}, err
	}
	if err := os.Rename(tmp, filepath.Join(dir, "ask-"+id)); err != nil {
		return Credential{}, err
	}
	answer := filepath.Join(dir, "answer-"+id)
	defer os.Remove(answer)
	deadline := time.NewTimer(credentialWait)
	defer deadline.Stop()
	tick := time.NewTicker(credentialPoll)
	defer tick.Stop()
	for {
		select {
		case <-deadline.C:
			_ = os.Remove(filepath.Join(dir, "ask-"+id))
			return Credential{}, errors.New("the runner did not answer")
		case <-tick.C:
		}
		b, err := readSmall(answer)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Credential{}, err
		}
		var c Credential
		if err := json.Unmarshal(b, &c); err != nil {
			return Credential{}, err
		}
		if c.Password == "" {
			return c, errors.New("the push was not permitted, or the owner's store has nothing for this host")
		}
		return c, nil
	}
}
