package web

import (
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"tugline.dev/tugline/shared/fleet"
)

// asked refuses query parameters that an operation does not have: who misspells one
// would take the answer for that to another question.
func (s *Server) asked(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	var has, wrongs []string
	for _, p := range ctx.Operation().Parameters {
		if p.In == "query" {
			has = append(has, p.Name)
		}
	}
	for name := range r.URL.Query() {
		if !slices.Contains(has, name) {
			wrongs = append(wrongs, name)
		}
	}
	if len(wrongs) == 0 {
		next(ctx)
		return
	}
	slices.Sort(wrongs)
	slices.Sort(has)
	hint := "it has none"
	if len(has) > 0 {
		hint = "it has " + list(has)
	}
	s.fail(w, r, wrong(fleet.BadRequest, "%s %s has no query parameter %s; %s", r.Method, ctx.Operation().Path, list(wrongs), hint))
}

// list quotes words, some of which may come from anywhere.
func list(words []string) (out string) {
	for i, word := range words {
		if i > 0 {
			out += ", "
		}
		out += quote(word)
	}
	return out
}
