package cli

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ck/internal/humanize"
	"ck/internal/numa"
)

const groupKey = "ck_group"

// Group adds flags to a set under a heading of help and man page. Values are checked when they are set, from whatever source.
type Group struct {
	fs   *pflag.FlagSet
	name string
}

// NewGroup starts a group of flags.
func NewGroup(fs *pflag.FlagSet, name string) Group {
	fs.SortFlags = false // help and man pages have the order of definition
	return Group{fs, name}
}

func (g Group) add(name string) {
	if err := g.fs.SetAnnotation(name, groupKey, []string{g.name}); err != nil {
		panic(err)
	}
}

func (g Group) value(v pflag.Value, name, short, usage string) {
	g.fs.VarP(v, name, short, usage)
	g.add(name)
}

// Bool adds a flag that is off unless named.
func (g Group) Bool(p *bool, name, short, usage string) {
	g.fs.BoolVarP(p, name, short, false, usage)
	g.add(name)
}

// value is a flag's value with a parser. The zero default is not shown in the help.
type value struct {
	meta  string
	set   func(string) error
	get   func() string
	enums []string
}

func (v *value) Set(s string) error { return v.set(s) }
func (v *value) String() string {
	if v.get == nil {
		return ""
	}
	return v.get()
}
func (v *value) Type() string { return v.meta }

// Text adds a flag with a free text.
func (g Group) Text(p *string, name, short, def, meta, usage string) {
	*p = def
	g.value(&value{meta: meta, set: func(s string) error { *p = s; return nil }, get: func() string { return *p }}, name, short, usage)
}

// Texts adds a flag that may be repeated, each time with one text. A new source of settings replaces the list.
func (g Group) Texts(p *[]string, name, short, meta, usage string) {
	g.value(&texts{meta, p}, name, short, usage)
}

type texts struct {
	meta string
	p    *[]string
}

func (v *texts) Set(s string) error       { *v.p = append(*v.p, s); return nil }
func (v *texts) Replace(l []string) error { *v.p = slices.Clone(l); return nil }
func (v *texts) Append(s string) error    { return v.Set(s) }
func (v *texts) GetSlice() []string       { return *v.p }
func (v *texts) Type() string             { return v.meta }
func (v *texts) String() string {
	if v.p == nil || len(*v.p) == 0 {
		return ""
	}
	return fmt.Sprintf("%q", *v.p)
}

// Part is a value of one of several flags that share a list.
type Part struct{ Flag, Value string }

// Part adds a flag that may be repeated and mixed with others of the same list, which has their values in the order of the command line.
// A new source of settings replaces the flag's own values.
func (g Group) Part(list *[]Part, name, short, meta, usage string) {
	g.value(&part{meta, name, list}, name, short, usage)
}

type part struct {
	meta, name string
	list       *[]Part
}

func (v *part) Set(s string) error    { *v.list = append(*v.list, Part{v.name, s}); return nil }
func (v *part) Append(s string) error { return v.Set(s) }
func (v *part) Type() string          { return v.meta }

func (v *part) Replace(l []string) error {
	*v.list = slices.DeleteFunc(*v.list, func(p Part) bool { return p.Flag == v.name })
	for _, s := range l {
		v.Set(s)
	}
	return nil
}

func (v *part) GetSlice() []string {
	var l []string
	if v.list != nil {
		for _, p := range *v.list {
			if p.Flag == v.name {
				l = append(l, p.Value)
			}
		}
	}
	return l
}

// String is the value, quoted where there are several.
func (v *part) String() string {
	switch l := v.GetSlice(); len(l) {
	case 0:
		return ""
	case 1:
		return l[0]
	default:
		return fmt.Sprintf("%q", l)
	}
}

// Enum adds a flag that takes one of the words.
func (g Group) Enum(p *string, name, short, def, meta string, words []string, usage string) {
	*p = def
	set := func(s string) error {
		if !slices.Contains(words, s) {
			return fmt.Errorf("%q is not one of %s", s, strings.Join(words, ", "))
		}
		*p = s
		return nil
	}
	g.value(&value{meta: meta, set: set, get: func() string { return *p }, enums: words}, name, short, usage)
}

// Placement adds a flag with a mode of numa.ParseMode, which may be repeated: the last one is p, all are list.
func (g Group) Placement(p *string, list *[]string, name, def, usage string) {
	*p = def
	set := func(s string) error {
		_, err := numa.ParseMode(s)
		if err == nil {
			*p, *list = s, append(*list, s)
		}
		return err
	}
	g.value(&value{meta: "MODE", set: set, get: func() string { return *p }}, name, "", usage)
}

// Int adds a flag with a whole number in [lo, hi]. A default outside means "not set" and is not shown.
func (g Group) Int(p *int, name, short string, def, lo, hi int, meta, usage string) {
	*p = def
	set := func(s string) error {
		n, err := strconv.ParseInt(s, 10, 64)
		switch {
		case errors.Is(err, strconv.ErrRange):
			n = math.MaxInt64
		case err != nil:
			return fmt.Errorf("%q is no whole number", s)
		}
		if n < int64(lo) || n > int64(hi) {
			return fmt.Errorf("%s is not in %d..%d", s, lo, hi)
		}
		*p = int(n)
		return nil
	}
	get := func() string { return strconv.Itoa(*p) }
	if def < lo || def > hi {
		get = func() string {
			if *p == def {
				return ""
			}
			return strconv.Itoa(*p)
		}
	}
	g.value(&value{meta: meta, set: set, get: get}, name, short, usage)
}

// Float adds a flag with a number in [lo, hi].
func (g Group) Float(p *float64, name, short string, def, lo, hi float64, meta, usage string) {
	*p = def
	set := func(s string) error {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(x) {
			return fmt.Errorf("%q is no number", s)
		}
		if x < lo || x > hi {
			return fmt.Errorf("%s is not in %g..%g", s, lo, hi)
		}
		*p = x
		return nil
	}
	g.value(&value{meta: meta, set: set, get: func() string { return strconv.FormatFloat(*p, 'g', -1, 64) }}, name, short, usage)
}

// Size adds a flag with a number of bytes; 0 is "not set".
func (g Group) Size(p *int64, name, short string, def int64, meta, usage string) {
	*p = def
	set := func(s string) error {
		n, err := ParseSize(s)
		if err == nil {
			*p = n
		}
		return err
	}
	get := func() string {
		if *p == 0 {
			return ""
		}
		return FormatSize(*p)
	}
	g.value(&value{meta: meta, set: set, get: get}, name, short, usage)
}

// Duration adds a flag with a time span: 90s, 2m30s.
func (g Group) Duration(p *time.Duration, name, short string, def time.Duration, meta, usage string) {
	*p = def
	set := func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return fmt.Errorf("%q is no duration such as 90s or 2m30s", s)
		}
		*p = d
		return nil
	}
	g.value(&value{meta: meta, set: set, get: func() string { return p.String() }}, name, short, usage)
}

// FlagsOf are the flags of groups, in the order of their definition.
func FlagsOf(fs *pflag.FlagSet, groups ...string) []*pflag.Flag {
	var list []*pflag.Flag
	for _, g := range flagGroups(fs) {
		if slices.Contains(groups, g.name) {
			list = append(list, g.flags...)
		}
	}
	return list
}

// FlagNamed is the flag of a long name, another name of it, or a short one; nil if there is none.
func FlagNamed(fs *pflag.FlagSet, name string) *pflag.Flag {
	if len(name) == 1 {
		return fs.ShorthandLookup(name)
	}
	return fs.Lookup(name)
}

// SetFlag gives a flag the values of a list, or its one value, with the checks of the command line. Errors say what is wrong with the value.
func SetFlag(f *pflag.Flag, values []string) error {
	if err := set(f, values); err != nil {
		return errors.New(valueError(f, strings.Join(values, " "), err))
	}
	return nil
}

// Optional lets the flag stand without a value, which then is def: --name or --name=VALUE.
func (g Group) Optional(name, def string) { g.fs.Lookup(name).NoOptDefVal = def }

var sizeUnits = []struct {
	name  string
	bytes float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40}, {"B", 1},
}

// ParseSize reads a number of bytes as coreutils do: K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024; KB, MB, GB, TB of 1000.
func ParseSize(s string) (int64, error) {
	num, unit := strings.TrimSpace(s), 1.0
	for _, u := range sizeUnits {
		if len(num) > len(u.name) && strings.EqualFold(num[len(num)-len(u.name):], u.name) {
			num, unit = strings.TrimSpace(num[:len(num)-len(u.name)]), u.bytes
			break
		}
	}
	x, err := strconv.ParseFloat(num, 64)
	if err != nil || !(x >= 0) || strings.ContainsAny(num, "xXpPnN_eE") {
		return 0, fmt.Errorf("%q is no size such as 4G, 512MiB or 1000000", s)
	}
	if x*unit >= 1<<62 {
		return 0, fmt.Errorf("%s is more than any machine has", s)
	}
	return int64(x * unit), nil
}

// FormatSize is the shortest exact form that ParseSize reads back.
func FormatSize(n int64) string {
	for i := 3; i >= 0; i-- {
		if u := int64(sizeUnits[i].bytes); n != 0 && n%u == 0 {
			return fmt.Sprintf("%d%s", n/u, sizeUnits[i].name)
		}
	}
	return strconv.FormatInt(n, 10)
}

// flagError turns pflag's errors into usage errors of our form.
func (a *App) flagError(cmd *cobra.Command, err error) error {
	see := fmt.Sprintf("see %s --help", cmd.CommandPath())
	var unknown *pflag.NotExistError
	var noValue *pflag.ValueRequiredError
	var bad *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		name := "--" + unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			name = "-" + unknown.GetSpecifiedName()
			return Usage("%s: unknown flag; %s, or put words that begin with - behind --", name, see)
		}
		if near := nearest(cmd.Flags(), unknown.GetSpecifiedName()); near != "" {
			return Usage("%s: unknown flag; is --%s meant? %s", name, near, see)
		}
		return Usage("%s: unknown flag; %s", name, see)
	case errors.As(err, &noValue):
		return Usage("%s: needs a value; %s", flagName(noValue.GetFlag()), see)
	case errors.As(err, &bad):
		return Usage("%s: %s; %s", flagName(bad.GetFlag()), valueError(bad.GetFlag(), bad.GetValue(), bad.Unwrap()), see)
	}
	return Usage("%w; %s", err, see)
}

// flagName is the flag as users know it: -n/--predict.
func flagName(f *pflag.Flag) string {
	if f.Shorthand != "" {
		return "-" + f.Shorthand + "/--" + f.Name
	}
	return "--" + f.Name
}

// valueError is the text of a value's rejection.
func valueError(f *pflag.Flag, val string, err error) string {
	if f.Value.Type() == "bool" {
		return fmt.Sprintf("%q is neither true nor false", val)
	}
	return err.Error()
}

// nearest is the flag whose name differs least from a mistyped one, or "".
func nearest(fs *pflag.FlagSet, name string) string {
	best, bestDist := "", max(2, len(name)/3)+1
	fs.VisitAll(func(f *pflag.Flag) {
		if d := humanize.Distance(f.Name, name); !f.Hidden && d < bestDist {
			best, bestDist = f.Name, d
		}
	})
	return best
}

// rewrite replaces the words of a.Rewrite where they stand as flags: not as the value of another flag, and not behind "--".
func (a *App) rewrite(args []string) []string {
	out := slices.Clone(args)
	for i := 0; i < len(out); i++ {
		s := out[i]
		name, val, hasVal := strings.Cut(s, "=")
		if long, ok := a.Rewrite[name]; ok {
			out[i] = long
			if hasVal {
				out[i] += "=" + val
				continue
			}
			i++
			continue
		}
		if s == "--" {
			break
		}
		if a.takesNext(s) {
			i++
		}
	}
	return out
}

// takesNext reports whether the argument is a flag whose value is the next argument.
func (a *App) takesNext(s string) bool {
	find := func(get func(*pflag.FlagSet) *pflag.Flag) *pflag.Flag {
		for _, c := range append([]*cobra.Command{a.Root}, a.Root.Commands()...) {
			for _, fs := range []*pflag.FlagSet{c.PersistentFlags(), c.Flags()} {
				if f := get(fs); f != nil {
					return f
				}
			}
		}
		return nil
	}
	switch {
	case strings.HasPrefix(s, "--"):
		if strings.Contains(s, "=") {
			return false
		}
		f := find(func(fs *pflag.FlagSet) *pflag.Flag { return fs.Lookup(s[2:]) })
		return f != nil && f.NoOptDefVal == ""
	case len(s) > 1 && s[0] == '-':
		// A cluster: the first flag that takes a value takes the rest of the word, or the next word.
		for j := 1; j < len(s); j++ {
			f := find(func(fs *pflag.FlagSet) *pflag.Flag { return fs.ShorthandLookup(s[j : j+1]) })
			if f == nil || s[j] >= 0x80 {
				return false
			}
			if f.NoOptDefVal == "" {
				return j == len(s)-1
			}
		}
	}
	return false
}
