package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"ck/internal/cli"
	"ck/internal/plaintext"
)

// settable are the flags that /set changes. They are the command's own, with their checks.
func (c *Chat) settable() []*pflag.Flag {
	return slices.DeleteFunc(cli.FlagsOf(c.Flags, c.Groups...), func(f *pflag.Flag) bool { return slices.Contains(c.Fixed, f.Name) })
}

// set is /set KEY VALUE. KEY alone shows its value, nothing shows all.
func (c *Chat) set(_ context.Context, args string) error {
	key, word, given := strings.Cut(args, " ")
	if key = strings.TrimLeft(key, "-"); key == "" {
		for _, f := range c.settable() {
			c.showSetting(f)
		}
		return nil
	}
	f := cli.FlagNamed(c.Flags, key)
	switch {
	case f == nil || !slices.Contains(c.settable(), f):
		if f != nil && slices.Contains(c.Fixed, f.Name) {
			return cli.Usage("/set %s: is fixed while a chat runs; /save the conversation, start again with --%s and /load it", key, f.Name)
		}
		return cli.Usage("/set %s: no such setting; /set alone lists them", key)
	case !given:
		c.showSetting(f)
		return nil
	}
	values, err := settingValues(f, strings.TrimSpace(word))
	if err != nil {
		return cli.Usage("/set %s: %w", f.Name, err)
	}
	return c.change(f, values)
}

// settingValues reads a value, which may be quoted as in JSON, so that it can hold line ends or nothing at all. The empty text empties a
// list.
func settingValues(f *pflag.Flag, word string) ([]string, error) {
	if strings.HasPrefix(word, `"`) {
		if err := json.Unmarshal([]byte(word), &word); err != nil {
			return nil, fmt.Errorf("%s is no text in double quotes; write \" in it as \\\"", word)
		}
	}
	if _, list := f.Value.(pflag.SliceValue); list && word == "" {
		return nil, nil
	}
	return []string{word}, nil
}

// change gives a flag its values; if they are refused, or contradict others, all is as before.
func (c *Chat) change(f *pflag.Flag, values []string) error {
	o, was, before := c.Settings, *c.Settings, f.Changed
	err := cli.SetFlag(f, values)
	if err == nil {
		err = o.Check()
	}
	if err == nil && f.Name == "seed" {
		err = o.TakeSeed()
	}
	if err != nil {
		*o, f.Changed = was, before
		return cli.Usage("/set %s: %s", f.Name, strings.TrimPrefix(err.Error(), "--"+f.Name+": "))
	}
	if f.Name == "think" {
		c.useThink(true)
	}
	c.showSetting(f)
	return nil
}

// showSetting prints a setting with its value.
func (c *Chat) showSetting(f *pflag.Flag) {
	value := f.Value.String()
	if f.Name == "seed" {
		value = fmt.Sprint(c.Settings.Sample.Seed)
	}
	what, _, _ := strings.Cut(f.Usage, ";")
	fmt.Fprint(plaintext.TextWriter(c.App.Err), cli.Columns(fmt.Sprintf("%-16s %s", f.Name, plaintext.Escape(value)), what, 30, c.width()))
}
