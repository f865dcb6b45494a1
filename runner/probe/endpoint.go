package probe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// endpoint is where a Docker daemon may be reached.
type endpoint struct {
	host  string // e.g. unix:///var/run/docker.sock
	certs string // directory of the client's certificates; empty: none
}

// endpoints gives where the docker command would go by its settings: the environment,
// then its context. Without a setting these are the usual sockets, the first that
// answers counts.
func (s *Sampler) endpoints(context.Context) ([]endpoint, error) {
	if host := s.env("DOCKER_HOST"); host != "" {
		e := endpoint{host: host}
		if s.env("DOCKER_TLS_VERIFY") != "" || s.env("DOCKER_TLS") != "" {
			if e.certs = s.env("DOCKER_CERT_PATH"); e.certs == "" {
				e.certs = s.dockerDir()
			}
		}
		return []endpoint{e}, nil
	}
	if host := s.dockerContext(); host != "" {
		return []endpoint{{host: host}}, nil
	}
	sockets := []string{s.file("var/run/docker.sock")}
	if dir := s.env("XDG_RUNTIME_DIR"); dir != "" {
		sockets = append(sockets, filepath.Join(dir, "docker.sock"))
	}
	if home := s.env("HOME"); home != "" {
		for _, at := range []string{".docker/run", ".docker/desktop", ".orbstack/run", ".colima/default", ".rd"} {
			sockets = append(sockets, filepath.Join(home, at, "docker.sock"))
		}
	}
	var found []endpoint
	for _, at := range sockets {
		if _, err := os.Stat(at); err == nil {
			found = append(found, endpoint{host: "unix://" + at})
		}
	}
	return found, nil
}

// dockerDir is where the docker command keeps its settings.
func (s *Sampler) dockerDir() string {
	if dir := s.env("DOCKER_CONFIG"); dir != "" {
		return dir
	}
	return filepath.Join(s.env("HOME"), ".docker")
}

// dockerContext gives the address of the context that the docker command is set to;
// empty where that is the default one.
func (s *Sampler) dockerContext() string {
	name := s.env("DOCKER_CONTEXT")
	if name == "" {
		var settings struct {
			Current string `json:"currentContext"`
		}
		b, err := os.ReadFile(filepath.Join(s.dockerDir(), "config.json"))
		if err != nil || json.Unmarshal(b, &settings) != nil {
			return ""
		}
		name = settings.Current
	}
	if name == "" || name == "default" {
		return ""
	}
	var meta struct {
		Endpoints struct {
			Docker struct {
				Host string
			} `json:"docker"`
		}
	}
	sum := sha256.Sum256([]byte(name)) // the directory is named so
	b, err := os.ReadFile(filepath.Join(s.dockerDir(), "contexts", "meta", hex.EncodeToString(sum[:]), "meta.json"))
	if err != nil || json.Unmarshal(b, &meta) != nil {
		return ""
	}
	return meta.Endpoints.Docker.Host
}

// socketOf gives the path of a local socket; empty for another kind of address.
func (e endpoint) socketOf() string {
	path, ok := strings.CutPrefix(e.host, "unix://")
	if !ok {
		return ""
	}
	return path
}
