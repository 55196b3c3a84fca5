package cli

import (
	"strings"
	"testing"
)

// --jsonl prints rows with their schema in front; the command line decides against the settings, and both together are refused.
func TestLines(t *testing.T) {
	for _, c := range []struct {
		name, json, jsonl string // of the environment
		args              []string
		code              int
		want              string // JSON, JSONL
	}{
		{"flag", "", "", []string{"--jsonl"}, 0, "true true"},
		{"none", "", "", nil, 0, "false false"},
		{"settings", "", "1", nil, 0, "true true"},
		{"flag against settings", "", "1", []string{"--json"}, 0, "true false"},
		{"flag against settings", "1", "", []string{"--jsonl"}, 0, "true true"},
		{"both", "", "", []string{"--json", "--jsonl"}, ExitUsage, ""},
		{"both in the settings", "1", "1", nil, ExitUsage, ""},
	} {
		t.Setenv("CK_JSON", c.json)
		t.Setenv("CK_JSONL", c.jsonl)
		ta := newTestApp(t)
		ta.AddLinesFlag()
		code, _, errOut := ta.run(c.args...)
		if code != c.code {
			t.Errorf("%s %q: exit %d, %s", c.name, c.args, code, errOut)
		}
		if got := map[bool]string{true: "true", false: "false"}; c.code == 0 && got[ta.Common.JSON]+" "+got[ta.Common.JSONL] != c.want {
			t.Errorf("%s %q: JSON %v, JSONL %v, want %s", c.name, c.args, ta.Common.JSON, ta.Common.JSONL, c.want)
		}
		if c.code == ExitUsage && !strings.HasSuffix(errOut, "error: --jsonl: contradicts --json; choose one\n") {
			t.Errorf("%s: %s", c.name, errOut)
		}
	}
	t.Setenv("CK_JSON", "")
	t.Setenv("CK_JSONL", "")
	ta := newTestApp(t)
	if err := PrintLines(ta.App, "a/1", []struct {
		N string `json:"n"`
	}{{"x\u009b"}, {"y"}}); err != nil {
		t.Fatal(err)
	}
	if err := PrintLines(ta.App, "b/1", []struct{}{{}}); err != nil {
		t.Fatal(err)
	}
	ta.AddLinesFlag()
	_, out, _ := ta.run("config", "--jsonl")
	want := `{"schema":"a/1","n":"x\u009b"}` + "\n" + `{"schema":"a/1","n":"y"}` + "\n" + `{"schema":"b/1"}` + "\n" + `{"schema":"ck.config.setting/1","key":"cpu",`
	if !strings.HasPrefix(out, want) {
		t.Errorf("%s", out)
	}
}
