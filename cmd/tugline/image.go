//go:build image

package main

// An image made from nothing has no time zones and no CA roots of its own.
import (
	_ "time/tzdata"

	_ "golang.org/x/crypto/x509roots/fallback"
)
