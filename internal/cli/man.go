package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Man is the source of the program's man page (roff, macros of man(7)), made from the commands, their flags and Doc.
func (a *App) Man() string {
	var b strings.Builder
	root := a.Root
	fmt.Fprintf(&b, ".\\\" Made by \"%s --man\". DO NOT EDIT.\n", a.Name)
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"ck %s\" \"ck\"\n", strings.ToUpper(a.Name), roff(Version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.nf\n", a.Name, roff(root.Short))
	for _, c := range append([]*cobra.Command{root}, subcommands(root)...) {
		b.WriteString(roffLine(useLine(c)))
	}
	b.WriteString(".fi\n.SH DESCRIPTION\n" + roffText(root.Long))
	b.WriteString(".SH OPTIONS\n")
	manFlags(&b, root)
	if subs := subcommands(root); len(subs) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, c := range subs {
			fmt.Fprintf(&b, ".SS %s\n", roff(useLine(c)))
			text := c.Long
			if text == "" {
				text = strings.ToUpper(c.Short[:1]) + c.Short[1:] + "."
			}
			b.WriteString(roffText(text))
			manSubFlags(&b, root, c)
		}
	}
	for _, s := range a.Doc {
		fmt.Fprintf(&b, ".SH %s\n%s", strings.ToUpper(roff(s.Title)), roffText(s.Text))
	}
	if root.Example != "" {
		b.WriteString(".SH EXAMPLES\n" + roffText(root.Example))
	}
	b.WriteString(".SH EXIT STATUS\n")
	for _, e := range exitTable {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", e.Code, roff(e.Text))
	}
	b.WriteString(".SH SETTINGS\n" + roffText(fmt.Sprintf(`Flags win over environment variables, these over the settings file, and that over the defaults.
The variable of a flag is CK_ and its long name in upper case, - as _: %s for --mem-limit.
The file is $XDG_CONFIG_HOME/ck/config.toml (~/.config/ck/config.toml), or what --config or CK_CONFIG names; it has a section per program:

  [%s]
  threads = 8

"%s config" prints what is in force and where it came from.
NO_COLOR and TERM=dumb turn colours and progress bars off.`, EnvName("mem-limit"), a.Name, a.Name)))
	return b.String()
}

// manFlags writes all flags of the root command, under their groups.
func manFlags(b *strings.Builder, root *cobra.Command) {
	root.Flags().SortFlags = false
	for _, g := range flagGroups(root.LocalFlags()) {
		fmt.Fprintf(b, ".SS %s\n", roff(g.name))
		for _, f := range g.flags {
			manFlag(b, f)
		}
	}
}

// manSubFlags writes the flags of a subcommand; those that say the same as the root's are only named.
func manSubFlags(b *strings.Builder, root, c *cobra.Command) {
	c.Flags().SortFlags = false
	var same []string
	for _, g := range flagGroups(c.LocalNonPersistentFlags()) {
		for _, f := range g.flags {
			if r := root.Flags().Lookup(f.Name); r != nil && r.Usage == f.Usage {
				same = append(same, "--"+f.Name)
				continue
			}
			manFlag(b, f)
		}
	}
	if len(same) > 0 {
		fmt.Fprintf(b, ".PP\nAs without a command: %s.\n", roff(strings.Join(same, ", ")))
	}
}

func manFlag(b *strings.Builder, f *pflag.Flag) {
	fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(strings.TrimSpace(flagUse(f))), roff(flagText(f)))
}

var roffEscapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...", "→", `\(->`)

// roff escapes a text within a line.
func roff(s string) string { return roffEscapes.Replace(s) }

// roffLine is a line of its own, which must not look like a request.
func roffLine(s string) string {
	s = roff(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s + "\n"
}

// roffText turns paragraphs into roff. Indented lines stand as they are.
func roffText(s string) string {
	var b strings.Builder
	verbatim, gap := false, false
	for i, line := range strings.Split(strings.Trim(s, "\n"), "\n") {
		if strings.TrimSpace(line) == "" {
			gap = true
			continue
		}
		indented := line[0] == ' '
		switch {
		case indented && !verbatim:
			b.WriteString(".PP\n.nf\n")
		case !indented && verbatim:
			b.WriteString(".fi\n.PP\n")
		case gap && i > 0 && !verbatim:
			b.WriteString(".PP\n")
		case gap && verbatim:
			b.WriteString("\n")
		}
		verbatim, gap = indented, false
		b.WriteString(roffLine(line))
	}
	if verbatim {
		b.WriteString(".fi\n")
	}
	return b.String()
}
