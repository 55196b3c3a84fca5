package cli

import (
	_ "embed"
	"slices"
	"strings"

	"ck/internal/humanize"
)

// flagNames are the long flags of all programs, one a line: go generate takes them from the man pages.
//
//go:embed flags.txt
var flagNames string

// ownVariables begin the names of variables that are not settings: of ck's own tests, and of its builds.
var ownVariables = []string{"CK_TEST_", "CK_BENCH_", "CK_COMMIT"}

// misspelt finds the setting, of whichever program, that a variable CK_… means which is none; "" if it is one, or like none. Variables like
// none are left alone: other software may have the same prefix.
func misspelt(name string) (meant string) {
	if !strings.HasPrefix(strings.ToUpper(name), "CK_") || slices.ContainsFunc(ownVariables, func(p string) bool { return strings.HasPrefix(name, p) }) {
		return ""
	}
	upper := strings.ReplaceAll(strings.ToUpper(name), "-", "_")
	bestDist := 1 + max(1, (len(name)+2)/5) // of the whole name: 1 for CK_TEMP, 2 for CK_MODLE, 3 for CK_REPEAT_LASTN
	for f := range strings.Lines(flagNames) {
		known := EnvName(strings.TrimSpace(f))
		if known == name {
			return ""
		}
		d := humanize.Distance(known, upper)
		if strings.ReplaceAll(known, "_", "") == strings.ReplaceAll(upper, "_", "") || len(known) >= len("CK_TEMP") && strings.HasPrefix(upper, known) {
			d = min(d, 1) // CK_UBATCH_, CK_TEMPERATURE
		}
		if d < bestDist {
			meant, bestDist = known, d
		}
	}
	return meant
}

// warnMisspelt names variables of the environment, which are "NAME=VALUE", that are set and that no program reads.
func (a *App) warnMisspelt(environ []string) {
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if meant := misspelt(name); meant != "" && value != "" {
			a.Warn("%s: no program of ck has this setting; is %s meant?", name, meant)
		}
	}
}
