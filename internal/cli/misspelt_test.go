package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Variables that look like a setting and are none are named; settings of any program, those of tests and those of other software are not.
func TestMisspelt(t *testing.T) {
	for name, want := range map[string]string{
		"CK_THREAD": "CK_THREADS", "CK_THREADS": "", "CK_TREADS": "CK_THREADS", "CK_TEMPERATURE": "CK_TEMP", "CK_TMP": "CK_TEMP", "CK_MODLE": "CK_MODEL",
		"CK_MEMLIMIT": "CK_MEM_LIMIT", "CK_MEM_LIMIT": "", "CK_MEM-LIMIT": "CK_MEM_LIMIT", "ck_threads": "CK_THREADS", "CK_TOPK": "CK_TOP_K", "CK_NO_PACKS": "CK_NO_PACK",
		"CK_REPEAT_LASTN": "CK_REPEAT_LAST_N", "CK_BANDWIDTH": "", "CK_CONFIG": "", "CK_TEST_REQUIRE": "", "CK_BENCH_SHAPE": "", "CK_COMMIT": "", "CK_TOKEN_URL": "", "CK_": "",
		"THREADS": "", "CK_KV": "", "CK_KW": "CK_KV",
	} {
		if got := misspelt(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	ta := newTestApp(t)
	t.Setenv("CK_THREAD", "3")
	t.Setenv("CK_TMP", "")
	ta.Root.RunE = func(*cobra.Command, []string) error { return nil }
	code, _, errOut := ta.run()
	if want := "ckx: warning: CK_THREAD: no program of ck has this setting; is CK_THREADS meant?\n"; code != 0 || strings.Count(errOut, "CK_") != 2 || errOut != want {
		t.Errorf("code %d, %q, want %q", code, errOut, want)
	}
}
