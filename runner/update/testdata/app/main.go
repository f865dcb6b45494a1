// A program that can be updated, and does nothing else.
package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"time"

	"tugline.dev/tugline/runner/update"
)

// Set by the linker.
var version, kind string

func main() {
	if len(os.Args) > 1 && os.Args[1] == "version" {
		switch kind {
		case "mute":
			os.Exit(1)
		case "hangs":
			time.Sleep(time.Hour)
		case "lies":
			version = "9.9.9"
		}
		fmt.Printf("{\"version\":%q,\"os\":%q,\"arch\":%q}\n", version, runtime.GOOS, runtime.GOARCH)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	s, err := update.Open(exe, slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err)
	}
	switch err := s.Begin(); {
	case errors.Is(err, update.ErrRestored):
		fmt.Println("restored")
		os.Exit(75)
	case err != nil:
		panic(err)
	}
	fmt.Println("started", version)
	if kind == "crashes" {
		panic("as built")
	}
	io.Copy(io.Discard, os.Stdin)
	if err := s.Survived(); err != nil {
		panic(err)
	}
}
