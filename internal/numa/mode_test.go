package numa

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseMode(t *testing.T) {
	for s, want := range map[string]string{
		"": "{first-touch [] true false false} <nil>", "auto": "{first-touch [] true false false} <nil>", "off": "{first-touch [] false false false} <nil>", "interleave": "{interleave [] false false false} <nil>",
		"bind=0": "{bind [0] false false false} <nil>", "bind=3,1": "{bind [3 1] false false false} <nil>",
		"bind": "is no placement", "bind=": `"" is no number`, "bind=1,": `"" is no number`, "bind=-1": "is no number", "bind=1024": "is no number",
		"bind=1,1": "names node 1 twice", "bind=0x1": "is no number", "tp": "{first-touch [] false true false} <nil>", "mirror": "{first-touch [] false true true} <nil>", "TP": "is no placement", "Off": "is no placement", "interleave=0": "is no placement",
	} {
		m, err := ParseMode(s)
		if got := fmt.Sprint(m, " ", err); got != want && !(err != nil && strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	}
}
