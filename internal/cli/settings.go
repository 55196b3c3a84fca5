package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ck/internal/plaintext"
)

// Setting is a flag's value in force and where it came from.
type Setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"` // "flag", the variable's name, the file's path, "default"
}

const sourceFlag = "flag"

// notSettings are flags that ask for something once; neither environment nor file can set them.
var notSettings = []string{"help", "version", "config", "completion", "man"}

// EnvName is the environment variable of a flag: CK_ and the name in upper case, - as _.
func EnvName(flag string) string {
	return "CK_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// configPath is the settings file and whether the user named it.
func (a *App) configPath() (path string, named bool) {
	if p := a.Common.config; p != "" {
		return p, true
	}
	if p := os.Getenv("CK_CONFIG"); p != "" {
		return p, true
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", false // neither $XDG_CONFIG_HOME nor $HOME: there is no such file
	}
	return filepath.Join(dir, "ck", "config.toml"), false
}

// settings gives flags that the command line does not name their values from the environment, else from the settings file.
func (a *App) settings(cmd *cobra.Command) error {
	file, path, err := a.readConfig(cmd.Context())
	if err != nil {
		return err
	}
	a.warnMisspelt(os.Environ())
	for _, fs := range a.flagSets(cmd) {
		var err error
		fs.VisitAll(func(f *pflag.Flag) {
			if err == nil {
				err = a.apply(f, file, path)
			}
		})
		if err != nil {
			return err
		}
	}
	return a.chooseJSON()
}

// chooseJSON decides between --json and --jsonl, where the command line has one and the settings the other, or both have both.
func (a *App) chooseJSON() error {
	c := &a.Common
	document, lines := a.values["json"], a.values["jsonl"]
	if !c.JSONL || document.Value != "true" {
		c.JSON = c.JSON || c.JSONL
		return nil
	}
	if (document.Source == sourceFlag) == (lines.Source == sourceFlag) {
		return Usage("--jsonl: contradicts --json; choose one")
	}
	c.JSON, c.JSONL = true, lines.Source == sourceFlag
	return nil
}

// flagSets are the flags of the command; for "config", those of all commands.
func (a *App) flagSets(cmd *cobra.Command) []*pflag.FlagSet {
	sets := []*pflag.FlagSet{cmd.Flags()}
	if cmd.Name() == "config" {
		sets = append(sets, a.allFlags()...)
	}
	return sets
}

func (a *App) allFlags() []*pflag.FlagSet {
	sets := []*pflag.FlagSet{a.Root.PersistentFlags(), a.Root.Flags()}
	for _, c := range a.Root.Commands() {
		sets = append(sets, c.Flags())
	}
	return sets
}

// apply decides the value of one flag.
func (a *App) apply(f *pflag.Flag, file settingsFile, path string) error {
	if slices.Contains(notSettings, f.Name) {
		return nil
	}
	source := "default"
	switch env, key := os.Getenv(EnvName(f.Name)), a.Name+"."+f.Name; {
	case a.values[f.Name].Source != "": // decided before, in another flag set
		return nil
	case f.Changed:
		source = sourceFlag
	case env != "":
		source = EnvName(f.Name)
		if err := set(f, []string{env}); err != nil {
			return Usage("%s: %s; change or unset it", source, valueError(f, env, err))
		}
	case file.has(key):
		source = path
		list, err := scalarWords(file[key])
		if err == nil {
			err = set(f, list)
		}
		if err != nil {
			return Usage("%s: [%s] %s: %s; correct it", path, a.Name, f.Name, valueError(f, strings.Join(list, " "), err))
		}
	}
	a.values[f.Name] = Setting{f.Name, f.Value.String(), source}
	return nil
}

// Given reports whether the command line names the flag; else its value is from the environment, the settings file or the default.
func (a *App) Given(name string) bool { return a.values[name].Source == sourceFlag }

// set gives a flag a value from outside the command line.
func set(f *pflag.Flag, list []string) error {
	if s, ok := f.Value.(pflag.SliceValue); ok {
		f.Changed = true
		return s.Replace(list)
	}
	if len(list) != 1 {
		return errors.New("takes one value, not a list")
	}
	f.Changed = true
	return f.Value.Set(list[0])
}

// scalarWords is a TOML value as the words that a command line would give.
func scalarWords(v any) ([]string, error) {
	switch v := v.(type) {
	case string, bool, int64, float64, int, uint64:
		return []string{fmt.Sprint(v)}, nil
	case []any:
		var out []string
		for _, e := range v {
			l, err := scalarWords(e)
			if err != nil || len(l) != 1 {
				return nil, errors.New("a list may hold texts and numbers only")
			}
			out = append(out, l[0])
		}
		return out, nil
	}
	return nil, fmt.Errorf("a value of type %T cannot be used", v)
}

const (
	configMax = 1 << 20 // bytes of a settings file: thousands of times what there is to say
	keyLevels = 8       // parts of a dotted key, and levels of a value; two are in use
)

// readConfig reads the settings file; it is nil where there is none.
func (a *App) readConfig(ctx context.Context) (settingsFile, string, error) {
	path, named := a.configPath()
	if path == "" {
		return nil, "", nil
	}
	switch info, err := os.Stat(path); {
	case err != nil && !named: // there is none, or the home folder is somebody else's, as under sudo -u
		return nil, "", nil
	case err != nil:
		return nil, "", err
	case !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeNamedPipe && !info.IsDir():
		return nil, "", Input("%s: is a device; settings come from a file or a pipe", path)
	}
	text, err := readConfigFile(ctx, path)
	if err != nil {
		return nil, "", err
	}
	if err := checkDepth(text); err != nil {
		return nil, "", Input("%s: %w; correct it", path, err)
	}
	var tables map[string]any
	if err := toml.Unmarshal(text, &tables); err != nil {
		var de *toml.DecodeError
		if errors.As(err, &de) {
			row, col := de.Position()
			return nil, "", Input("%s: line %d, column %d: %s; correct it", path, row, col, strings.TrimPrefix(de.Error(), "toml: "))
		}
		return nil, "", Input("%s: %s; correct it", path, strings.TrimPrefix(err.Error(), "toml: "))
	}
	file := settingsFile{}
	if err := file.add("", tables); err != nil {
		return nil, "", Input("%s: %w; correct it", path, err)
	}
	return file, path, a.checkKeys(file, path)
}

// settingsFile is the values of a settings file by their dotted keys in lower case.
type settingsFile map[string]any

func (s settingsFile) has(key string) bool {
	_, ok := s[key]
	return ok
}

// add takes over the values of a table, whose keys begin with prefix.
func (s settingsFile) add(prefix string, table map[string]any) error {
	for name, v := range table {
		key := prefix + strings.ToLower(name)
		if t, ok := v.(map[string]any); ok {
			if err := s.add(key+".", t); err != nil {
				return err
			}
			continue
		}
		if s.has(key) {
			return fmt.Errorf("key %s is there twice, in letters of other case", key)
		}
		s[key] = v
	}
	return nil
}

func readConfigFile(ctx context.Context, path string) ([]byte, error) {
	f, err := OpenReader(ctx, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, configMax+1))
	if err == nil && len(text) > configMax {
		err = Input("%s: has more than 1 MiB; is it a settings file?", path)
	}
	return text, err
}

// checkDepth refuses keys of more parts, and values of more levels, than keyLevels: what reads them takes the square of their number, or
// all of the stack. It looks at brackets and points outside of strings and comments; what is no TOML is left to the reader.
func checkDepth(text []byte) error {
	line, open, points := 1, 0, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\n':
			line, points = line+1, 0
		case '=', ',':
			points = 0
		case '.':
			points++
		case '[', '{':
			open, points = open+1, 0
		case ']', '}':
			open = max(open-1, 0)
		case '#', '"', '\'':
			n := skip(text[i:])
			line += bytes.Count(text[i:i+n], []byte{'\n'})
			i += n - 1
		}
		if max(open, points) >= keyLevels {
			return fmt.Errorf("line %d: a key or value of %d levels", line, keyLevels+1)
		}
	}
	return nil
}

// skip is the length of the comment or string that text begins with, without the line end behind it.
func skip(text []byte) int {
	mark := text[:1]
	if m := bytes.Repeat(mark, 3); mark[0] != '#' && bytes.HasPrefix(text, m) {
		mark = m
	}
	for i := len(mark); i < len(text); i++ {
		switch {
		case text[i] == '\n' && len(mark) == 1:
			return i // the end of a comment; a string of one line is not closed
		case text[i] == '\\' && mark[0] == '"':
			i++
		case mark[0] != '#' && bytes.HasPrefix(text[i:], mark):
			return i + len(mark)
		}
	}
	return len(text)
}

// checkKeys finds keys that no flag has, so that a mistyped one is not ignored.
func (a *App) checkKeys(file settingsFile, path string) error {
	known := map[string]bool{}
	for _, fs := range a.allFlags() {
		fs.VisitAll(func(f *pflag.Flag) { known[f.Name] = !slices.Contains(notSettings, f.Name) })
	}
	for _, k := range slices.Sorted(maps.Keys(file)) {
		section, name, ok := strings.Cut(k, ".")
		switch {
		case !ok:
			return Usage("%s: key %s stands outside a section; write it below [%s]", path, k, a.Name)
		case section == a.Name && !known[name]:
			return Usage("%s: [%s] has no key %s; see %s config", path, a.Name, name, a.Name)
		}
	}
	return nil
}

// AddConfigCommand adds "config", which prints what is in force and where it came from. It takes the flags that the root command has by now.
func (a *App) AddConfigCommand() {
	c := a.NewCommand("config", "print the settings in force and where they came from",
		"Prints every setting with its value and its source: a flag, an environment variable, the settings file or the default.",
		func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return Usage("config: takes no words; see %s config --help", a.Name)
			}
			return a.printConfig()
		})
	c.Flags().SortFlags = false
	c.Flags().AddFlagSet(a.Root.Flags())
}

func (a *App) printConfig() error {
	var list []Setting
	for _, s := range a.values {
		list = append(list, s)
	}
	slices.SortFunc(list, func(x, y Setting) int { return strings.Compare(x.Key, y.Key) })
	path, _ := a.configPath()
	// ckrun has a --jsonl of its own.
	lines := a.values["jsonl"].Value == "true" && (!a.Common.JSON || a.values["jsonl"].Source == sourceFlag)
	if a.Common.JSONL || lines {
		return PrintLines(a, "ck.config.setting/1", list)
	}
	if a.Common.JSON {
		return a.PrintJSON(struct {
			Schema   string    `json:"schema"`
			Program  string    `json:"program"`
			File     string    `json:"file"`
			Settings []Setting `json:"settings"`
		}{"ck.config/1", a.Name, path, list})
	}
	t := plaintext.Table{Head: []string{"key", "value", "source"}}
	for _, s := range list {
		t.Rows = append(t.Rows, []string{s.Key, s.Value, s.Source})
	}
	return OutError(t.Write(a.Out, a.Common.Plain))
}

// PrintJSON writes one document and a line end to stdout: see EncodeJSON.
func (a *App) PrintJSON(v any) error { return OutError(plaintext.EncodeJSON(a.Out, v)) }

// PrintLines prints the rows of a table as --jsonl has them: an object a line, which begins with the schema of such rows. T is a struct
// without a schema of its own.
func PrintLines[T any](a *App, schema string, rows []T) error {
	var out bytes.Buffer
	for _, r := range rows {
		var b bytes.Buffer
		if err := plaintext.EncodeJSON(&b, r); err != nil {
			return err
		}
		rest := bytes.TrimPrefix(b.Bytes(), []byte("{"))
		comma := ","
		if bytes.HasPrefix(rest, []byte("}")) {
			comma = ""
		}
		fmt.Fprintf(&out, `{"schema":%q%s%s`, schema, comma, rest)
	}
	_, err := a.Out.Write(out.Bytes())
	return OutError(err)
}
