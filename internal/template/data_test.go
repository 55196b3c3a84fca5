package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ck/internal/template/value"
	"ck/internal/testkit"
)

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func fromJSON(t testing.TB, b []byte) value.Value {
	t.Helper()
	v, err := value.FromJSON(b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// now is the time at which the reference texts were rendered.
var now = time.Date(2024, 7, 26, 13, 5, 9, 0, time.UTC)

// TestRealTemplates renders every case of data/templates and compares with the text, or the refusal, of jinja2.
func TestRealTemplates(t *testing.T) {
	dir := testkit.Data(t, "templates")
	type conversation struct {
		Messages json.RawMessage
		Tools    json.RawMessage
	}
	conversations := map[string]conversation{}
	readJSON(t, filepath.Join(dir, "conversations.json"), &conversations)
	files, err := filepath.Glob(filepath.Join(dir, "cases", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	total, raised, good := 0, 0, 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		source, err := os.ReadFile(filepath.Join(dir, "jinja", name+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		tmpl, err := Parse(name, string(source))
		if err != nil {
			t.Error(err)
			continue
		}
		var cases []struct {
			Conversation        string
			AddGenerationPrompt bool `json:"add_generation_prompt"`
			Vars                json.RawMessage
			Tools               json.RawMessage
			Expected            *string
			Error               *string
		}
		readJSON(t, file, &cases)
		for _, c := range cases {
			total++
			conv, ok := conversations[c.Conversation]
			if !ok {
				t.Fatalf("%s: no conversation %s", name, c.Conversation)
			}
			vars := Vars{"messages": fromJSON(t, conv.Messages), "tools": nil, "documents": nil, "add_generation_prompt": c.AddGenerationPrompt}
			tools := conv.Tools
			if c.Tools != nil {
				tools = c.Tools
			}
			if tools != nil {
				vars["tools"] = fromJSON(t, tools)
			}
			more := fromJSON(t, c.Vars).(*value.Dict)
			for i, k := range more.Keys {
				vars[k.(string)] = more.Vals[i]
			}
			got, err := tmpl.Render(vars, Options{Now: now})
			checkOwn(t, tmpl, vars, got, err)
			var refused *ErrRaised
			switch {
			case c.Error != nil:
				raised++
				if !errors.As(err, &refused) || refused.Message != *c.Error {
					t.Errorf("%s, %s: error %v, want %q", name, c.Conversation, err, *c.Error)
					continue
				}
			case err != nil:
				t.Errorf("%s, %s: %v", name, c.Conversation, err)
				continue
			case got != *c.Expected:
				t.Errorf("%s, %s:\n got %q\nwant %q", name, c.Conversation, got, *c.Expected)
				continue
			}
			good++
		}
	}
	t.Logf("%d of %d cases exact, %d of them refusals, %d templates", good, total, raised, len(files))
	if total < 1872 || raised < 26 {
		t.Errorf("only %d cases with %d refusals", total, raised)
	}
}

// untrusted is v with all texts from outside, but for the keys of dicts and the values of roles.
func untrusted(v value.Value) value.Value {
	switch v := v.(type) {
	case string:
		return value.Untrusted(v)
	case *value.List:
		l := &value.List{Tuple: v.Tuple}
		for _, item := range v.Items {
			l.Items = append(l.Items, untrusted(item))
		}
		return l
	case *value.Dict:
		d := value.NewDict()
		for i, k := range v.Keys {
			key := k.(string)
			if d.Set(key, untrusted(v.Vals[i])); key == "role" {
				d.Set(key, v.Vals[i])
			}
		}
		return d
	}
	return v
}

var tokenName = regexp.MustCompile(`<\|[a-z_]+\|>|<｜[^｜]+｜>|<(start|end)_of_turn>|\[/?(INST|SYSTEM_PROMPT)\]|</s>`)

// checkOwn renders again with the messages from outside: the text is the same, and each name of a control token that
// no message has is the template's own.
func checkOwn(t *testing.T, tmpl *Template, vars Vars, want string, wantErr error) {
	t.Helper()
	outside := Vars{}
	for k, v := range vars {
		outside[k] = v
	}
	outside["messages"] = untrusted(vars["messages"])
	list, err := tmpl.RenderParts(outside, Options{Now: now})
	got, r := "", value.NewRun(time.Now(), value.Limits{}.WithDefaults(1<<20))
	for _, p := range list {
		got += p.Text
		if name := tokenName.FindString(p.Text); !p.Own && name != "" && !strings.Contains(fmt.Sprint(tokenName.FindAllString(r.Repr(vars["messages"]), -1)), name) {
			t.Errorf("%s: %s in %.200q is not the template's own", tmpl.name, name, p.Text)
		}
	}
	if (err == nil) != (wantErr == nil) || err == nil && got != want {
		t.Errorf("%s: %q, %v; with messages from outside %q, %v", tmpl.name, want, wantErr, got, err)
	}
}

// TestProbes renders the one-line probes of the language.
func TestProbes(t *testing.T) {
	var file struct {
		Context json.RawMessage
		Probes  []struct{ Template, Expected, Error string }
	}
	readJSON(t, testkit.Data(t, "templates/probes.json"), &file)
	context := fromJSON(t, file.Context).(*value.Dict)
	vars := Vars{}
	for i, k := range context.Keys {
		vars[k.(string)] = context.Vals[i]
	}
	good := 0
	for _, p := range file.Probes {
		got, err := "", error(nil)
		tmpl, err := Parse("probe", p.Template)
		if err == nil {
			got, err = tmpl.Render(vars, Options{Now: now})
			outside := Vars{}
			for k, v := range vars {
				outside[k] = untrusted(v)
			}
			again, err2 := tmpl.Render(outside, Options{Now: now})
			if again != got || fmt.Sprint(err2) != fmt.Sprint(err) {
				t.Errorf("%s: %q, %v; with texts from outside %q, %v", p.Template, got, err, again, err2)
			}
		}
		var e *Error
		switch {
		case p.Error != "" && (!errors.As(err, &e) || e.Kind != p.Error):
			t.Errorf("%s: %q, error %v; want a %s", p.Template, got, err, p.Error)
		case p.Error == "" && (err != nil || got != p.Expected):
			t.Errorf("%s:\n got %q, %v\nwant %q", p.Template, got, err, p.Expected)
		default:
			good++
		}
	}
	t.Logf("%d of %d probes", good, len(file.Probes))
}
