package consensus

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger lets raft log through l. raft calls every election a warning and
// every start an information; here those are Info and Debug, and only its
// errors keep their level.
func raftLogger(l *slog.Logger) hclog.Logger { return &logBridge{log: l} }

// logBridge is an hclog.Logger on a slog.Logger.
type logBridge struct {
	log     *slog.Logger
	name    string
	implied []any
}

func level(l hclog.Level) slog.Level {
	switch l {
	case hclog.Error:
		return slog.LevelError
	case hclog.Warn:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// Log implements hclog.Logger.
func (b *logBridge) Log(l hclog.Level, msg string, args ...any) {
	at := levelOf(l, msg, args)
	if l == hclog.Off || !b.log.Enabled(context.Background(), at) {
		return
	}
	attrs := make([]any, 0, len(b.implied)+len(args)+2)
	attrs = append(attrs, "component", "raft")
	for _, a := range append(b.implied[:len(b.implied):len(b.implied)], args...) {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			a = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
		attrs = append(attrs, a)
	}
	b.log.Log(context.Background(), at, msg, attrs...)
}

func (b *logBridge) enabled(l hclog.Level) bool {
	return l != hclog.Off && b.log.Enabled(context.Background(), level(l))
}

func (b *logBridge) Trace(msg string, args ...any) { b.Log(hclog.Trace, msg, args...) }
func (b *logBridge) Debug(msg string, args ...any) { b.Log(hclog.Debug, msg, args...) }
func (b *logBridge) Info(msg string, args ...any)  { b.Log(hclog.Info, msg, args...) }
func (b *logBridge) Warn(msg string, args ...any)  { b.Log(hclog.Warn, msg, args...) }
func (b *logBridge) Error(msg string, args ...any) { b.Log(hclog.Error, msg, args...) }

func (b *logBridge) IsTrace() bool { return b.enabled(hclog.Trace) }
func (b *logBridge) IsDebug() bool { return b.enabled(hclog.Debug) }
func (b *logBridge) IsInfo() bool  { return b.enabled(hclog.Info) }
func (b *logBridge) IsWarn() bool  { return b.enabled(hclog.Warn) }
func (b *logBridge) IsError() bool { return b.enabled(hclog.Error) }

func (b *logBridge) ImpliedArgs() []any { return b.implied }
func (b *logBridge) Name() string       { return b.name }

func (b *logBridge) With(args ...any) hclog.Logger {
	return &logBridge{b.log, b.name, append(b.implied[:len(b.implied):len(b.implied)], args...)}
}

func (b *logBridge) Named(name string) hclog.Logger {
	if b.name != "" {
		name = b.name + "." + name
	}
	return b.ResetNamed(name)
}

func (b *logBridge) ResetNamed(name string) hclog.Logger {
	return &logBridge{b.log, name, b.implied}
}

// SetLevel does nothing: the level is that of the slog handler.
func (b *logBridge) SetLevel(hclog.Level) {}

func (b *logBridge) GetLevel() hclog.Level {
	for _, l := range []hclog.Level{hclog.Trace, hclog.Warn, hclog.Error} {
		if b.enabled(l) {
			return l
		}
	}
	return hclog.Off
}

func (b *logBridge) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(b.log.Handler(), slog.LevelDebug)
}

func (b *logBridge) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	return b.StandardLogger(o).Writer()
}
