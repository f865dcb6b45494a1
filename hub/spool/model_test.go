package spool

import (
	"bytes"
	"errors"
	"os"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"tugline.dev/tugline/shared/fleet"
)

// TestModel compares the store with byte slices over random appends, resends,
// gaps, seals, deletions, failures of the disk and restarts.
func TestModel(t *testing.T) {
	type model struct {
		data   []byte
		sealed bool
	}
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		if err != nil {
			t.Fatal(err)
		}
		d := &disk{}
		var s *Store
		start := func() {
			if s, err = Open(Config{Dir: dir, OpenFiles: 1, MaxStream: 64}); err != nil {
				t.Fatalf("Open: %v", err)
			}
			s.files.open = d.open
		}
		start()
		defer func() { s.Close() }()
		models := map[Key]*model{}
		pick := func() (Key, *model) {
			k := key(rapid.IntRange(0, 1).Draw(t, "job"), rapid.SampledFrom([]Name{Output, Events}).Draw(t, "name"))
			if models[k] == nil {
				models[k] = &model{}
			}
			return k, models[k]
		}
		offer := func(m *model) (int64, []byte) {
			offset := rapid.IntRange(0, len(m.data)+2).Draw(t, "offset")
			fresh := rapid.SliceOfN(rapid.SampledFrom([]byte("ab")), 0, 12).Draw(t, "fresh")
			data := append(bytes.Clone(m.data[min(offset, len(m.data)):]), fresh...)
			if len(data) > 0 && rapid.IntRange(0, 4).Draw(t, "flip") == 0 {
				data[rapid.IntRange(0, len(data)-1).Draw(t, "at")] ^= 1
			}
			return int64(offset), data[:rapid.IntRange(0, len(data)).Draw(t, "length")]
		}
		want := func(m *model, offset int64, data []byte) error {
			end := int64(len(m.data))
			again := min(max(end-offset, 0), int64(len(data)))
			switch {
			case offset > end:
				return fleet.SpoolGap
			case m.sealed && (offset+int64(len(data)) > end || !bytes.Equal(data[:again], m.data[offset:offset+again])):
				return fleet.LogSealed
			case offset+int64(len(data)) > 64:
				return fleet.TooLarge
			case !bytes.Equal(data[:again], m.data[offset:offset+again]):
				return fleet.SpoolMismatch
			}
			return nil
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				var total int64
				for k, m := range models {
					size, sealed := s.Size(k)
					if size != int64(len(m.data)) || sealed != m.sealed {
						t.Fatalf("Size(%s): %d, %t, want %d, %t", k, size, sealed, len(m.data), m.sealed)
					}
					buf := make([]byte, len(m.data))
					if n, err := s.ReadAt(k, buf, 0); len(buf) > 0 && (err != nil || !bytes.Equal(buf, m.data)) {
						t.Fatalf("ReadAt(%s): %q, %v, want %q", k, buf[:n], err, m.data)
					}
					total += size
				}
				if got, _ := s.Usage(); got != total {
					t.Fatalf("Usage: %d bytes, want %d", got, total)
				}
			},
			"append": func(t *rapid.T) {
				k, m := pick()
				offset, data := offer(m)
				d.set(-1, nil, nil)
				wanted := want(m, offset, data)
				_, err := s.Append(t.Context(), k, offset, data)
				if !errors.Is(err, wanted) {
					t.Fatalf("Append(%s, %d, %q): %v, want %v", k, offset, data, err, wanted)
				}
				if err == nil {
					m.data = append(m.data[:offset:offset], append(bytes.Clone(data), m.data[min(offset+int64(len(data)), int64(len(m.data))):]...)...)
				}
			},
			"append on a failing disk": func(t *rapid.T) {
				k, m := pick()
				offset, data := offer(m)
				var sync, truncate error
				if rapid.Bool().Draw(t, "sync fails") {
					sync = syscall.EIO
				}
				if rapid.Bool().Draw(t, "truncate fails") {
					truncate = syscall.EIO
				}
				d.set(rapid.Int64Range(0, 6).Draw(t, "space"), sync, truncate)
				wanted := want(m, offset, data)
				n, err := s.Append(t.Context(), k, offset, data)
				if err == nil && wanted != nil {
					t.Fatalf("Append(%s, %d, %q) on a failing disk succeeded, want %v", k, offset, data, wanted)
				}
				if err == nil {
					m.data = append(m.data[:offset:offset], append(bytes.Clone(data), m.data[min(offset+int64(len(data)), int64(len(m.data))):]...)...)
				}
				if n > int64(len(m.data)) {
					t.Fatalf("Append(%s, %d, %q) on a failing disk: %d durable, want at most %d", k, offset, data, n, len(m.data))
				}
			},
			"seal": func(t *rapid.T) {
				k, m := pick()
				d.set(-1, nil, nil)
				end := len(m.data)
				length := rapid.IntRange(max(end-1, 0), end+1).Draw(t, "length")
				err := s.Seal(t.Context(), k, int64(length), rapid.SampledFrom([]fleet.Digest{"", digest(string(m.data))}).Draw(t, "digest"))
				if (err == nil) != (length == end) {
					t.Fatalf("Seal(%s, %d) of %d bytes: %v", k, length, end, err)
				}
				m.sealed = m.sealed || err == nil
			},
			"delete": func(t *rapid.T) {
				k, _ := pick()
				if err := s.Delete(k.Job); err != nil {
					t.Fatalf("Delete(%s): %v", k.Job, err)
				}
				delete(models, Key{k.Job, k.Fence, Output})
				delete(models, Key{k.Job, k.Fence, Events})
			},
			"restart": func(t *rapid.T) {
				// The file may keep what could not be cut off; as after a crash, it
				// is then part of the stream.
				d.set(-1, nil, nil)
				for k, m := range models {
					if _, err := s.Append(t.Context(), k, int64(len(m.data)), nil); err != nil {
						t.Fatalf("Append of nothing to %s: %v", k, err)
					}
				}
				s.Close()
				start()
			},
		})
	})
}
