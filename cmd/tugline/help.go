package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
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
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND\n", c.CommandPath())
	} else {
		line := c.UseLine()
		if c.HasAvailableLocalFlags() && !strings.Contains(line, "[FLAGS]") {
			line += " [FLAGS]"
		}
		fmt.Fprintf(&b, "  %s\n", line)
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
	if f := c.LocalFlags(); f.HasAvailableFlags() && !(c.HasAvailableSubCommands() && c.HasParent()) {
		fmt.Fprintf(&b, "\nFlags:\n%s", f.FlagUsagesWrapped(helpWidth))
	}
	if c.HasAvailableInheritedFlags() && !c.HasAvailableSubCommands() && c.Annotations[here] == "" {
		fmt.Fprintf(&b, "\nThe hub:\n%s", c.InheritedFlags().FlagUsagesWrapped(helpWidth))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n`%s COMMAND --help` tells more.\n", c.CommandPath())
	}
	_, _ = io.WriteString(w, b.String())
}

func subCommands(w io.Writer, c *cobra.Command, group string) {
	for _, s := range c.Commands() {
		if s.GroupID == group && (s.IsAvailableCommand() || s.Name() == "help") {
			fmt.Fprintf(w, "  %-*s  %s\n", c.NamePadding(), s.Name(), s.Short)
		}
	}
}
