package isa

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// Saved answers of CPUID against features that others found in them.
func TestDumpsOfRealCPUs(t *testing.T) {
	dir := testkit.Data(t, "topology/cpuid")
	b, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cpus []struct {
		Name, File, Brand, Vendor, Signature string
		Family, Model                        int
		Features                             []string
		XCR0                                 string `json:"xcr0_supported"`
		AMX                                  *struct {
			TotalBytes int `json:"total_tile_bytes"`
			TileBytes  int `json:"bytes_per_tile"`
			RowBytes   int `json:"bytes_per_row"`
			Tiles      int
			MaxRows    int `json:"max_rows"`
			MaxK       int `json:"tmul_maxk"`
			MaxN       int `json:"tmul_maxn"`
		}
	}
	if err := json.Unmarshal(b, &cpus); err != nil || len(cpus) < 17 {
		t.Fatalf("%d CPUs, %v", len(cpus), err)
	}
	for _, c := range cpus {
		text, err := os.ReadFile(filepath.Join(dir, c.File))
		if err != nil {
			t.Fatal(err)
		}
		d, err := ParseDump(string(text))
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		sig, _ := strconv.ParseUint(c.Signature, 16, 32)
		xcr0, _ := strconv.ParseUint(c.XCR0, 0, 64)
		if d.Vendor != c.Vendor || d.Brand != strings.Join(strings.Fields(c.Brand), " ") || d.Signature != uint32(sig) || d.Family != c.Family || d.Model != c.Model {
			t.Errorf("%s: %q %q %08x family %d model %d", c.Name, d.Vendor, d.Brand, d.Signature, d.Family, d.Model)
		}
		if slices.Sort(c.Features); !slices.Equal(d.Names, c.Features) {
			t.Errorf("%s: features\n got %v\nwant %v", c.Name, d.Names, c.Features)
		}
		if d.XCR0 != xcr0 {
			t.Errorf("%s: XCR0 %#x, want %#x", c.Name, d.XCR0, xcr0)
		}
		if (d.Tiles == nil) != (c.AMX == nil) || c.AMX != nil &&
			*d.Tiles != (Tiles{c.AMX.TotalBytes, c.AMX.TileBytes, c.AMX.RowBytes, c.AMX.Tiles, c.AMX.MaxRows, c.AMX.MaxK, c.AMX.MaxN}) {
			t.Errorf("%s: tiles %+v, want %+v", c.Name, d.Tiles, c.AMX)
		}
		// All of these processors can enable the states that their features need.
		if got, want := d.Features(), FromNames(c.Features); got != want {
			t.Errorf("%s: usable %v, want %v", c.Name, got, want)
		}
	}
}

func TestDumpStates(t *testing.T) {
	d := Dump{Names: strings.Fields((needVNNI | FeatAMXTile | FeatAMXInt8).String()), XCR0: 0x602e7}
	if got := d.Features(); got != needVNNI|FeatAMXTile|FeatAMXInt8 {
		t.Errorf("all states: %v", got)
	}
	for xcr0, want := range map[uint64]Features{0x2e7: needVNNI, 0x207: needAVX2, 0x3: 0, 0: 0, 0x60207: needAVX2 | FeatAMXTile | FeatAMXInt8} {
		d.XCR0 = xcr0
		if got := d.Features(); got != want {
			t.Errorf("XCR0 %#x: %v, want %v", xcr0, got, want)
		}
	}
}

// The kernel calls some features otherwise than everybody else.
func TestKernelNames(t *testing.T) {
	flags := strings.Fields("fpu pni avx512ifma avx512vbmi avx512_vbmi2 avx2 sse4_1 hypervisor")
	if got, want := Known(flags), strings.Fields("avx2 avx512_ifma avx512_vbmi avx512_vbmi2 sse3 sse4_1"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := Known(nil); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}

func TestDumpFormats(t *testing.T) {
	plain, err := ParseDump("# a comment\n0 0 7 756e6547 6c65746e 49656e69\n7 0 0 20 0 0\n7 1 10 10 10 10\n\n")
	if err != nil || plain.Vendor != "GenuineIntel" || !slices.Equal(plain.Names, []string{"avx2"}) {
		t.Errorf("plain: %+v, %v", plain, err)
	}
	hwloc, err := ParseDump("# mask e[abcd]x => e[abcd]x\n1 0 0 0 0 => 7 756e6547 6c65746e 49656e69\n5 7 0 0 0 => 0 20 0 0\n5 7 0 1 0 => 1 0 0 0\n1 1 0 ff 0 => 306c3 0 0 0\n")
	if err != nil || hwloc.Vendor != "GenuineIntel" || !slices.Equal(hwloc.Names, []string{"avx2"}) || hwloc.Model != 0x3c {
		t.Errorf("hwloc: %+v, %v", hwloc, err)
	}
	for _, s := range []string{"", "# nothing", "hello", "0 0 1 2 3", "1 0 0 0 0 0", "0 0 100000000 0 0 0", "1 0 0 0 => 0 0 0 0", "\x00\xff\x01"} {
		if d, err := ParseDump(s); err == nil {
			t.Errorf("%q: %+v", s, d)
		}
	}
}

func FuzzParseDump(tf *testing.F) {
	f := testkit.Fuzz(tf)
	f.Add("0 0 7 756e6547 6c65746e 49656e69\n7 0 1 20 0 ffffffff\n1d 1 ffffffff ffffffff 0 0")
	f.Add("1 0 0 0 0 => 7 756e6547 6c65746e 49656e69")
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDump(s)
		if err != nil && len(d.Names) > 0 {
			t.Errorf("%q: %v, and yet %v", s, err, d.Names)
		}
		if !slices.Equal(Known(d.Names), d.Names) {
			t.Errorf("%q: %v is not what is known", s, d.Names)
		}
		d.Features()
	})
}
