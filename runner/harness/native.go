package harness

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// The npm packages of some CLIs put a Node script in PATH that starts the real program as a child. A SIGKILL to
// the script leaves that child running with the output pipes open, so the real program is started instead.

func nativeCodex(path string) string {
	triple := map[string]string{
		"linux/amd64": "x86_64-unknown-linux-musl", "linux/arm64": "aarch64-unknown-linux-musl",
		"darwin/amd64": "x86_64-apple-darwin", "darwin/arm64": "aarch64-apple-darwin",
	}[runtime.GOOS+"/"+runtime.GOARCH]
	pkg := "codex-" + nodePlatform()
	program := filepath.Join("vendor", triple, "bin", "codex")
	root := filepath.Dir(filepath.Dir(path)) // of the package: the script is bin/codex.js
	return behindScript(path,
		filepath.Join(root, "node_modules", "@openai", pkg, program),
		filepath.Join(root, "..", pkg, program),
		filepath.Join(root, program),
		filepath.Join(root, "vendor", triple, "codex", "codex"))
}

func nativeOpencode(path string) string {
	pkg := "opencode-" + nodePlatform()
	root := filepath.Dir(filepath.Dir(path))
	return behindScript(path,
		filepath.Join(root, "node_modules", pkg, "bin", "opencode"),
		filepath.Join(root, "..", pkg, "bin", "opencode"))
}

// nodePlatform gives the name that npm packages use for this machine.
func nodePlatform() string {
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	return runtime.GOOS + "-" + arch
}

// behindScript gives the first of the candidates that is an executable file if path is a Node script, else path.
func behindScript(path string, candidates ...string) string {
	f, err := os.Open(path)
	if err != nil {
		return path
	}
	head := make([]byte, 128)
	n, _ := io.ReadFull(f, head)
	_ = f.Close()
	first, _, _ := bytes.Cut(head[:n], []byte("\n"))
	if !bytes.HasPrefix(first, []byte("#!")) || !bytes.Contains(first, []byte("node")) {
		return path
	}
	for _, c := range candidates {
		if st, err := os.Stat(c); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			if real, err := filepath.EvalSymlinks(c); err == nil {
				return real
			}
		}
	}
	return path
}
