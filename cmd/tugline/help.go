package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is where the text of flags is broken, in characters.
const helpWidth = 110

// here marks commands that speak to no hub: their help does not offer the flags
// that name one.
const here = "here"

func local(c *cobra.Command) *cobra.Command {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[here] = "yes"
	return c
}

// usageText writes a command's usage: how it is called, examples, commands below
// it, and flags.
func usageText(w io.Writer, c *cobra.Command) {
	var b strings.Builder
	b.WriteString("Usage:\n")
	does := acts(c)
	if does {
		line := c.UseLine()
		if c.HasAvailableLocalFlags() && !strings.Contains(line, "[FLAGS]") {
			line += " [FLAGS]"
		}
		fmt.Fprintf(&b, "  %s\n", line)
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND\n", c.CommandPath())
	}
	if c.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
	}
	if c.HasAvailableSubCommands() {
		for _, g := range c.Groups() {
			fmt.Fprintf(&b, "\n%s\n", g.Title)
			subCommands(&b, c, g.ID)
		}
		if len(c.Groups()) == 0 {
			b.WriteString("\nCommands:\n")
			subCommands(&b, c, "")
		}
	}
	if f := c.LocalFlags(); f.HasAvailableFlags() && (does || !c.HasParent()) {
		fmt.Fprintf(&b, "\nFlags:\n%s", f.FlagUsagesWrapped(helpWidth))
	}
	if c.HasAvailableInheritedFlags() && does && c.Annotations[here] == "" {
		fmt.Fprintf(&b, "\nThe hub:\n%s", c.InheritedFlags().FlagUsagesWrapped(helpWidth))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n`%s COMMAND --help` tells more.\n", c.CommandPath())
	}
	_, _ = io.WriteString(w, b.String())
}

// acts says whether a command does something of its own. One with commands below it
// does where it has flags beside the one for help: without, it is a name for them, or
// short for one of them.
func acts(c *cobra.Command) bool {
	if !c.HasAvailableSubCommands() {
		return true
	}
	own := false
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { own = own || f.Name != "help" && !f.Hidden })
	return own && c.HasParent()
}

func subCommands(w io.Writer, c *cobra.Command, group string) {
	for _, s := range c.Commands() {
		if s.GroupID == group && (s.IsAvailableCommand() || s.Name() == "help") {
			fmt.Fprintf(w, "  %-*s  %s\n", s.NamePadding(), s.Name(), s.Short)
		}
	}
}
