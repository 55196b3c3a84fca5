package cli

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Section is a part of the man page. Indented lines stand as they are.
type Section struct{ Title, Text string }

// helpWidth is the width of help texts; helpColumn is where the descriptions of flags begin.
const (
	helpWidth  = 100
	helpColumn = 27
)

// help is the text of --help.
func (a *App) help(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\nusage: %s\n", cmd.CommandPath(), cmd.Short, useLine(cmd))
	subs := subcommands(cmd)
	for _, c := range subs {
		fmt.Fprintf(&b, "       %s\n", useLine(c))
	}
	if cmd.Long != "" {
		b.WriteString("\n" + wrapText(cmd.Long, "", helpWidth))
	}
	if len(subs) > 0 {
		b.WriteString("\nCommands:\n")
		for _, c := range subs {
			b.WriteString(column("  "+c.Name(), c.Short))
		}
	}
	cmd.Flags().SortFlags = false
	for _, g := range flagGroups(cmd.Flags()) {
		fmt.Fprintf(&b, "\n%s:\n", g.name)
		for _, f := range g.flags {
			b.WriteString(column(flagUse(f), flagText(f)))
		}
	}
	if cmd.Example != "" {
		b.WriteString("\nExamples:\n" + strings.TrimRight(cmd.Example, "\n") + "\n")
	}
	fmt.Fprintf(&b, "\nEvery long flag is also a key of config.toml, below [%s], and a variable: %s.\n", a.Name, EnvName("threads"))
	b.WriteString("Exit status: 0 done, 1 check failed, 2 usage, 3 input, 4 resource, 5 internal, 128 + N by signal N.\n")
	return b.String()
}

// useLine is the usage of a command without cobra's additions.
func useLine(c *cobra.Command) string {
	if c.HasParent() {
		return c.Parent().Name() + " " + c.Use
	}
	return c.Use
}

func subcommands(cmd *cobra.Command) []*cobra.Command {
	var list []*cobra.Command
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			list = append(list, c)
		}
	}
	return list
}

type flagGroup struct {
	name  string
	flags []*pflag.Flag
}

// flagGroups are the flags in their groups, in the order of their definition; "Common" comes last.
func flagGroups(fs *pflag.FlagSet) []flagGroup {
	var groups []flagGroup
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "Other"
		if g := f.Annotations[groupKey]; len(g) > 0 {
			name = g[0]
		}
		i := slices.IndexFunc(groups, func(g flagGroup) bool { return g.name == name })
		if i < 0 {
			groups = append(groups, flagGroup{name: name})
			i = len(groups) - 1
		}
		groups[i].flags = append(groups[i].flags, f)
	})
	slices.SortStableFunc(groups, func(x, y flagGroup) int { return isCommon(x) - isCommon(y) })
	return groups
}

func isCommon(g flagGroup) int {
	if g.name == "Common" {
		return 1
	}
	return 0
}

// flagUse is "-n, --predict N".
func flagUse(f *pflag.Flag) string {
	s := "      --" + f.Name
	if f.Shorthand != "" {
		s = "  -" + f.Shorthand + ", --" + f.Name
	}
	switch meta := f.Value.Type(); {
	case meta == "bool":
	case f.NoOptDefVal != "":
		s += "[=" + meta + "]"
	default:
		s += " " + meta
	}
	return s
}

// flagText is the description with values and default.
func flagText(f *pflag.Flag) string {
	s := f.Usage
	if v, ok := f.Value.(*value); ok && len(v.enums) > 0 {
		s += " (" + strings.Join(v.enums, ", ") + ")"
	}
	if d := f.DefValue; d != "" && d != "false" {
		s += " [" + d + "]"
	}
	return s
}

// column is a left text and a right one that is wrapped in its column.
func column(left, right string) string { return Columns(left, right, helpColumn, helpWidth) }

// Columns is a left text and a right one that begins at column at and is wrapped between words, below width columns.
func Columns(left, right string, at, width int) string {
	text := wrapText(right, strings.Repeat(" ", at), max(width, at+20))
	if len([]rune(left)) > at-2 {
		return left + "\n" + text
	}
	return left + strings.Repeat(" ", at-len([]rune(left))) + strings.TrimLeft(text, " ")
}

// wrapText fills paragraphs to the width. Indented lines stand as they are.
func wrapText(s, indent string, width int) string {
	var b strings.Builder
	n := 0
	end := func() {
		if n > 0 {
			b.WriteByte('\n')
			n = 0
		}
	}
	for _, line := range strings.Split(strings.TrimRight(s, "\n"), "\n") {
		if strings.TrimSpace(line) == "" || line[0] == ' ' {
			end()
			b.WriteString(strings.TrimRight(indent+line, " ") + "\n")
			continue
		}
		for _, word := range strings.Fields(line) {
			l := len([]rune(word))
			switch {
			case n == 0:
				b.WriteString(indent)
				n = len(indent)
			case n+1+l > width:
				b.WriteString("\n" + indent)
				n = len(indent)
			default:
				b.WriteByte(' ')
				n++
			}
			b.WriteString(word)
			n += l
		}
	}
	end()
	return b.String()
}

// Completion writes the completion script of a shell.
func (a *App) Completion(w io.Writer, shell string) error {
	switch shell {
	case "bash":
		return a.Root.GenBashCompletionV2(w, true)
	case "zsh":
		return a.Root.GenZshCompletion(w)
	case "fish":
		return a.Root.GenFishCompletion(w, true)
	}
	return Usage("--completion: %q is not one of bash, zsh, fish", shell)
}

// complete answers the completion scripts. cobra lists its help command though it is hidden and cannot be removed.
func (a *App) complete(args []string) int {
	var b bytes.Buffer
	a.Root.SetArgs(args)
	a.Root.SetOut(&b)
	a.Root.SetErr(io.Discard)
	if err := a.Root.Execute(); err != nil {
		return a.Report(err)
	}
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "__") {
			continue
		}
		if _, err := io.WriteString(a.Out, line); err != nil {
			return a.Report(OutError(err))
		}
	}
	return ExitOK
}

// CompleteWords tells the completion scripts of all shells the words that a command takes: lists[i] for its i-th word. files: names of files
// are offered for the first word too, where none of the list fits.
func CompleteWords(c *cobra.Command, files bool, lists ...[]string) {
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(lists) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var fit []string
		for _, w := range lists[len(args)] {
			if strings.HasPrefix(strings.ToLower(w), strings.ToLower(begun)) {
				fit = append(fit, w)
			}
		}
		if files && len(args) == 0 {
			return fit, cobra.ShellCompDirectiveDefault
		}
		return fit, cobra.ShellCompDirectiveNoFileComp
	}
}

// registerCompletions tells cobra the words that flags take; only its hidden completion command asks for them.
func (a *App) registerCompletions() {
	for _, c := range append([]*cobra.Command{a.Root}, a.Root.Commands()...) {
		for _, fs := range []*pflag.FlagSet{c.PersistentFlags(), c.LocalNonPersistentFlags()} {
			fs.VisitAll(func(f *pflag.Flag) {
				if v, ok := f.Value.(*value); ok && len(v.enums) > 0 {
					// The error says that the flag has its words already.
					_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(v.enums, cobra.ShellCompDirectiveNoFileComp))
				}
			})
		}
	}
}
