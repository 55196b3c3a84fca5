package isa

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// The kernel's view of the CPU is an opinion of its own: it drops flags whose state it does not enable.
func TestDetectAgainstCPUInfo(t *testing.T) {
	if !built {
		if f := Detect(); f != 0 {
			t.Fatalf("a build without assembly detects %v", f)
		}
		return
	}
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Skip(err)
	}
	var want Features
	for _, line := range strings.Split(string(b), "\n") {
		if rest, ok := strings.CutPrefix(line, "flags"); ok {
			want = FromNames(strings.Fields(rest))
			break
		}
	}
	got := Detect() &^ FeatAMXState
	if got != want {
		t.Errorf("detected %v\n/proc/cpuinfo has %v", got, want)
	}
	t.Logf("best tier %v, available %v, features %v", Best(Detect()), Available(Detect()), Detect())
}

func TestDetectIsUsable(t *testing.T) {
	f := Detect()
	for _, tier := range Available(f) {
		if err := Check(tier, f); err != nil {
			t.Errorf("%v is available, but: %v", tier, err)
		}
	}
	if b := Best(f); b > VNNI {
		t.Errorf("best tier is %v, which has no kernels", b)
	}
}

func TestParse(t *testing.T) {
	for tier := Go; tier <= AMX; tier++ {
		got, err := Parse(tier.String())
		if err != nil || got != tier {
			t.Errorf("Parse(%q) = %v, %v", tier.String(), got, err)
		}
	}
	for _, s := range []string{"", "AVX2", "neon", "avx", "vnni "} {
		if _, err := Parse(s); err == nil || !strings.Contains(err.Error(), strconv.Quote(s)) {
			t.Errorf("Parse(%q): error %v does not name it", s, err)
		}
	}
	if s := Tier(99).String(); s != "tier(99)" {
		t.Errorf("Tier(99) is %q", s)
	}
}

func TestCheckNamesWhatIsMissing(t *testing.T) {
	if !built {
		for tier := AVX2; tier <= AMX; tier++ {
			if err := Check(tier, ^Features(0)); err == nil || !strings.Contains(err.Error(), "built without assembly") {
				t.Errorf("%v: %v", tier, err)
			}
		}
		return
	}
	for _, c := range []struct {
		tier Tier
		f    Features
		want string
	}{
		{Go, 0, ""},
		{AVX2, needAVX2, ""},
		{AVX2, needAVX2 &^ FeatF16C, "tier avx2: this CPU lacks f16c"},
		{AVX512, needAVX512 &^ FeatAVX512BW, "tier avx512: this CPU lacks avx512bw"},
		{AVX512, needAVX512 &^ (FeatAVX512BW | FeatAVX512VL), "tier avx512: this CPU lacks avx512bw, avx512vl"},
		{AVXVNNI, needVNNI, "tier avxvnni: this CPU lacks avx_vnni"},
		{VNNI, needVNNI, ""},
		{VNNI, needAVX512 | FeatAVXVNNI, "tier vnni: this CPU lacks avx512_vnni"},
		{AMX, ^Features(0) &^ FeatAMXState, "tier amx: this CPU lacks amx tile state in the kernel (Linux 5.16)"},
		{AMX, ^Features(0), "tier amx: there are no kernels for it yet; use vnni"},
		{Tier(-1), 0, "tier(-1) is no instruction set tier"},
		{Tier(77), 0, "tier(77) is no instruction set tier"},
	} {
		got := ""
		if err := Check(c.tier, c.f); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("Check(%v, %v) = %q, want %q", c.tier, c.f, got, c.want)
		}
	}
}

// Every single missing feature takes away exactly the tiers that need it.
func TestEachFeatureCounts(t *testing.T) {
	if !built {
		return
	}
	for i := range numFeatures {
		f := ^Features(0) &^ (1 << i)
		for _, tier := range Tiers() {
			if tier.Reserved() {
				continue
			}
			if got, want := Check(tier, f) == nil, tiers[tier].needs&(1<<i) == 0; got != want {
				t.Errorf("without %s: %v usable %v, want %v", featureNames[i], tier, got, want)
			}
		}
	}
}

// Feature lists of real CPUs with the tiers that they must get.
func TestTiersOfRealCPUs(t *testing.T) {
	dir := testkit.Data(t, "topology/cpuid")
	b, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cpus []struct {
		Name     string
		Features []string
	}
	if err := json.Unmarshal(b, &cpus); err != nil {
		t.Fatal(err)
	}
	want := map[string][]Tier{
		"sandybridge-e5-2650":    {Go},
		"ivybridge-e5-4620v2":    {Go},
		"haswell-e5-2680v3":      {Go, AVX2},
		"skylakesp-6140":         {Go, AVX2, AVX512},
		"cascadelake-6230":       {Go, AVX2, AVX512, VNNI},
		"icelakesp":              {Go, AVX2, AVX512, VNNI},
		"sapphirerapids-max9460": {Go, AVX2, AVXVNNI, AVX512, VNNI},
		"graniterapids":          {Go, AVX2, AVXVNNI, AVX512, VNNI},
		"alderlake-p":            {Go, AVX2, AVXVNNI},
		"alderlake-e":            {Go, AVX2, AVXVNNI},
		"arrowlake-245k":         {Go, AVX2, AVXVNNI},
		"arrowlake-u5-225u":      {Go, AVX2, AVXVNNI},
		"knightslanding-7210":    {Go, AVX2},
		"zen2-rome":              {Go, AVX2},
		"zen3-7763":              {Go, AVX2},
		"zen4-9654":              {Go, AVX2, AVX512, VNNI},
		"zen5-turin":             {Go, AVX2, AVXVNNI, AVX512, VNNI},
	}
	seen := 0
	for _, c := range cpus {
		w, ok := want[c.Name]
		if !ok {
			t.Errorf("%s: not in this test's table", c.Name)
			continue
		}
		seen++
		if !built {
			w = []Tier{Go}
		}
		if got := Available(FromNames(c.Features)); !reflect.DeepEqual(got, w) {
			t.Errorf("%s: tiers %v, want %v", c.Name, got, w)
		}
	}
	if seen != len(want) {
		t.Errorf("saw %d CPUs of %d", seen, len(want))
	}
}

func TestRequestAMX(t *testing.T) {
	err := RequestAMX()
	if has := Detect().Has(FeatAMXTile); has != (err == nil) {
		t.Errorf("amx_tile %v, but RequestAMX: %v", has, err)
	}
	if err != nil && !strings.Contains(err.Error(), "amx") {
		t.Errorf("the error does not name the tier: %v", err)
	}
}

func TestEveryTierHasItsRow(t *testing.T) {
	for tier, want := range map[Tier]string{Go: "go", AVX2: "avx2", AVXVNNI: "avxvnni", AVX512: "avx512", VNNI: "vnni", AMX: "amx"} {
		if got := tier.String(); got != want {
			t.Errorf("tiers has no row for %s, but one called %q", want, got)
		}
		if tier > Go && tier.known() && (tiers[tier].needs == 0 || tiers[tier].may&tiers[tier].needs != 0) {
			t.Errorf("tier %v needs %v and may use %v", tier, tiers[tier].needs, tiers[tier].may)
		}
	}
}
