package hub

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/nacl/secretbox"
	"golang.org/x/crypto/scrypt"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/hub/spool"
	"tugline.dev/tugline/shared/api"
	"tugline.dev/tugline/shared/fleet"
)

// A backup is a tar archive that common tools read and check:
//
//	backup.json      what it is
//	state            the replicated state, in consensus's own form
//	secrets.json     the cluster's keys, encrypted by a passphrase; left out without one
//	spool/JOB/NAME   recorded output, with output
//	blobs/XX/DIGEST  files, with output
//	SHA256SUMS       of all that, for sha256sum -c; an archive without it is not whole
const (
	archiveVersion = 1
	nameManifest   = "backup.json"
	nameState      = "state"
	nameSecrets    = "secrets.json"
	nameSums       = "SHA256SUMS"
	sealedRecord   = "TUGLINE.sealed"

	minPassphrase = 12
	maxSums       = 64 << 20
)

// backupSecrets are encrypted keys: secretbox under a key of scrypt.
type backupSecrets struct {
	N, R, P int
	Salt    []byte
	Nonce   []byte
	Box     []byte
}

func encryptSecrets(passphrase string, b []byte) (backupSecrets, error) {
	s := backupSecrets{N: 1 << 15, R: 8, P: 1, Salt: make([]byte, 16), Nonce: make([]byte, 24)}
	rand.Read(s.Salt)
	rand.Read(s.Nonce)
	k, err := s.key(passphrase)
	if err == nil {
		s.Box = secretbox.Seal(nil, b, (*[24]byte)(s.Nonce), k)
	}
	return s, err
}

func (s backupSecrets) key(passphrase string) (*[32]byte, error) {
	if s.N > 1<<20 || s.R > 32 || s.P > 16 || len(s.Nonce) != 24 {
		return nil, errors.New("the keys in the backup were not encrypted by this program")
	}
	k, err := scrypt.Key([]byte(passphrase), s.Salt, s.N, s.R, s.P, 32)
	if err != nil {
		return nil, err
	}
	return (*[32]byte)(k), nil
}

func (s backupSecrets) decrypt(passphrase string) ([]byte, error) {
	k, err := s.key(passphrase)
	if err != nil {
		return nil, err
	}
	b, ok := secretbox.Open(nil, s.Box, (*[24]byte)(s.Nonce), k)
	if !ok {
		return nil, fmt.Errorf("the passphrase does not open the keys in the backup: %w", fleet.BadRequest)
	}
	return b, nil
}

// Backup writes an archive of the cluster's state, made on the node that leads. With
// a passphrase it holds the cluster's keys; with output, recorded output and files.
func (h *Hub) Backup(ctx context.Context, w io.Writer, passphrase string, output bool) error {
	if passphrase != "" && len(passphrase) < minPassphrase {
		return fmt.Errorf("the passphrase has %d characters, at least %d: %w", len(passphrase), minPassphrase, fleet.BadRequest)
	}
	if err := h.node.VerifyLeader(ctx); err != nil {
		return fmt.Errorf("this node does not lead: %w: %w", fleet.Unavailable, err)
	}
	state, err := os.CreateTemp(h.cfg.Dir, ".backup-")
	if err != nil {
		return fmt.Errorf("make room for the backup's state: %w", err)
	}
	defer os.Remove(state.Name())
	defer state.Close()
	m := h.entries.View().Meta() // what is written is this or newer
	b, err := h.node.Backup(ctx, state)
	if err != nil {
		return err
	}
	a := &archiver{tar: tar.NewWriter(w)}
	man := api.Backup{
		Version: archiveVersion, Cluster: m.Cluster, Epoch: m.Epoch, Index: b.Number, Term: b.Term, MadeAt: h.wall().UTC(),
		Node: h.id.Node, Program: h.cfg.Version, Output: output, Secrets: passphrase != "",
	}
	if err := a.json(nameManifest, man); err != nil {
		return err
	}
	if err := a.file(ctx, nameState, state, nil); err != nil {
		return err
	}
	if passphrase != "" {
		keys, err := h.secrets.export()
		if err != nil {
			return err
		}
		enc, err := encryptSecrets(passphrase, keys)
		if err == nil {
			err = a.json(nameSecrets, enc)
		}
		if err != nil {
			return err
		}
	}
	if output {
		if err := h.archiveOutput(ctx, a); err != nil {
			return err
		}
	}
	return a.end()
}

// archiveOutput adds what lies beside the log.
func (h *Hub) archiveOutput(ctx context.Context, a *archiver) error {
	var streams []spool.Info
	h.spool.Each(func(i spool.Info) bool { streams = append(streams, i); return true })
	for _, i := range streams {
		r, err := h.spool.Reader(ctx, i.Key, 0, false)
		if err != nil {
			continue // deleted meanwhile
		}
		records := map[string]string{}
		if i.Sealed {
			records[sealedRecord] = "1"
		}
		err = a.bytes(ctx, "spool/"+i.Key.String(), i.Size, r, records)
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
	}
	var files []blob.Info
	if err := h.blobs.Each(func(i blob.Info) bool { files = append(files, i); return true }); err != nil {
		return err
	}
	for _, i := range files {
		r, size, err := h.blobs.Open(i.Digest)
		if err != nil {
			continue
		}
		err = a.bytes(ctx, "blobs/"+string(i.Digest[:2])+"/"+string(i.Digest), size, r, nil)
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
	}
	return nil
}

// archiver writes a tar archive and the sums of what is in it.
type archiver struct {
	tar  *tar.Writer
	sums bytes.Buffer
}

func (a *archiver) json(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	return a.bytes(context.Background(), name, int64(len(b)), bytes.NewReader(b), nil)
}

func (a *archiver) file(ctx context.Context, name string, f *os.File, records map[string]string) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	return a.bytes(ctx, name, size, f, records)
}

func (a *archiver) bytes(ctx context.Context, name string, size int64, r io.Reader, records map[string]string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	head := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: time.Unix(0, 0).UTC()}
	if len(records) > 0 {
		head.Format, head.PAXRecords = tar.FormatPAX, records
	}
	if err := a.tar.WriteHeader(head); err != nil {
		return fmt.Errorf("write %s into the backup: %w", name, err)
	}
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(a.tar, sum), r, size); err != nil {
		return fmt.Errorf("write %s into the backup: %w", name, err)
	}
	fmt.Fprintf(&a.sums, "%s  %s\n", hex.EncodeToString(sum.Sum(nil)), name)
	return nil
}

func (a *archiver) end() error {
	b := a.sums.Bytes()
	if err := a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: nameSums, Size: int64(len(b)), Mode: 0o600, ModTime: time.Unix(0, 0).UTC()}); err != nil {
		return err
	}
	if _, err := a.tar.Write(b); err != nil {
		return err
	}
	return a.tar.Close()
}

// ReadBackup reads an archive to its end and says what it is, if it is whole and
// nothing in it was changed. each, where it is not nil, is given what is in it before
// that is known.
func ReadBackup(r io.Reader, each func(head *tar.Header, r io.Reader) error) (api.Backup, error) {
	var man api.Backup
	bad := func(format string, a ...any) (api.Backup, error) {
		return man, fmt.Errorf("this is no whole backup: %s: %w", fmt.Sprintf(format, a...), fleet.BadRequest)
	}
	t := tar.NewReader(r)
	sums := map[string]string{}
	for first := true; ; first = false {
		head, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return bad("%s is missing; it was cut short", nameSums)
		case err != nil:
			return bad("%v", err)
		case head.Typeflag != tar.TypeReg || !filepath.IsLocal(head.Name) || strings.Contains(head.Name, "\\"):
			return bad("it holds %q, which no backup does", head.Name)
		case first && head.Name != nameManifest:
			return bad("it begins with %s instead of %s", head.Name, nameManifest)
		case head.Name == nameSums:
			if err := checkSums(io.LimitReader(t, maxSums), sums); err != nil {
				return bad("%v", err)
			}
			if _, ok := sums[nameState]; !ok {
				return bad("it has no state")
			}
			return man, nil
		case sums[head.Name] != "":
			return bad("it holds %s twice", head.Name)
		}
		sum := sha256.New()
		in := io.TeeReader(t, sum)
		switch {
		case first:
			b, err := io.ReadAll(io.LimitReader(in, 1<<20))
			if err == nil {
				err = json.Unmarshal(b, &man)
			}
			if err != nil {
				return bad("%s: %v", nameManifest, err)
			}
			if man.Version != archiveVersion {
				return bad("it is of version %d, and this tugline reads %d; use the newer one that made it", man.Version, archiveVersion)
			}
		case each != nil:
			if err := each(head, in); err != nil {
				return man, err
			}
		}
		if _, err := io.Copy(io.Discard, in); err != nil {
			return bad("%s: %v", head.Name, err)
		}
		sums[head.Name] = hex.EncodeToString(sum.Sum(nil))
	}
}

func checkSums(r io.Reader, have map[string]string) error {
	n := 0
	for lines := bufio.NewScanner(r); lines.Scan(); n++ {
		sum, name, ok := strings.Cut(lines.Text(), "  ")
		if !ok || have[name] != sum {
			return fmt.Errorf("%s is missing or was changed", name)
		}
	}
	if n != len(have) {
		return fmt.Errorf("it holds %d files of which %s knows %d", len(have), nameSums, n)
	}
	return nil
}
