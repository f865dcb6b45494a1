package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const readyTime = 4 * time.Second

func (a *app) hubReadyCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "ready", Short: "Say whether the hub that runs here can serve", Args: cobra.NoArgs,
		Long: `Ask the hub that runs on this machine with --data-dir whether it can serve: exit code 0 when it
leads or hears the leader and has caught up, 4 when it does not answer, 1 otherwise, with the
reason. It needs no token: for health checks.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				dir = a.env("TUGLINE_DATA_DIR")
			}
			if dir == "" {
				return usage("`tugline hub ready` needs --data-dir")
			}
			return a.hubReady(cmd.Context(), dir)
		},
	}
	c.Flags().StringVar(&dir, "data-dir", "", "data `DIR` of the hub (default TUGLINE_DATA_DIR)")
	return local(c)
}

// hubReady asks the port that the hub listens on, whatever name others reach it by.
func (a *app) hubReady(ctx context.Context, dir string) error {
	var listen, cert string
	var plain bool
	f := pflag.NewFlagSet("hub run", pflag.ContinueOnError)
	f.ParseErrorsAllowlist.UnknownFlags = true
	f.StringVar(&listen, "listen", "", "")
	f.StringVar(&cert, "tls-cert", "", "")
	f.BoolVar(&plain, "plain-http", false, "")
	was, err := readFlags(dir)
	if err != nil {
		return err
	}
	for name, values := range was {
		if f.Lookup(name) == nil {
			continue
		}
		for _, v := range values {
			if err := f.Set(name, v); err != nil {
				return fail(exitUsage, "%s has --%s %q: %v", filepath.Join(dir, keptFlagsFile), name, v, err)
			}
		}
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return fail(exitUsage, "no hub has run in %s yet", dir)
	}
	addr, bad := netip.ParseAddr(host)
	if host == "" || bad == nil && addr.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "https"
	if plain || cert == "" && (host == "localhost" || bad == nil && addr.IsLoopback()) {
		scheme = "http"
	}
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: hubRoots(dir), InsecureSkipVerify: cert != ""}}} // an operator's certificate names another host; nothing secret is sent
	res, err := client.Do(req)
	if err != nil {
		return fail(exitUnreachable, "the hub in %s does not answer: %v", dir, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil {
		return fail(exitUnreachable, "the hub in %s does not answer: %v", dir, err)
	}
	if res.StatusCode != http.StatusOK {
		return fail(exitFailed, "the hub in %s is not ready: %s", dir, sentence(refused(res, b)))
	}
	fmt.Fprintln(a.out, strings.TrimSpace(string(b)))
	return nil
}

// hubRoots are the certificates of the hub's own CA.
func hubRoots(dir string) *x509.CertPool {
	b, err := os.ReadFile(filepath.Join(dir, caName))
	if err != nil {
		return nil
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(b)
	return pool
}
