package testkit

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
)

// Mutated inputs depend on the target's name and the seeds alone, have the seeds' types, differ, and reach what lies near the seeds.
func TestMutations(t *testing.T) {
	seeds := [][]any{{"GET /index HTTP", []byte("\x00\x01body"), uint8(3), int64(-5), true, 1.5}, {"", []byte{}, uint8(0), int64(0), false, 0.0}, {"POST 12", []byte("xyz"), uint8(9), int64(7), true, 2.0}}
	const n = 5000
	got := mutations("FuzzX", seeds, n)
	slices.Reverse(seeds)
	text := func(x [][]any) string { return fmt.Sprintf("%q", x) }
	if again := mutations("FuzzX", seeds, n); text(got) != text(again) {
		t.Error("the order of the seeds changes the inputs")
	}
	if text(mutations("FuzzY", seeds, n)) == text(got) {
		t.Error("another target has the same inputs")
	}
	distinct, found := map[string]bool{}, map[string]int{}
	for _, x := range got {
		distinct[fmt.Sprintf("%q", x)] = true
		for i := range x {
			if reflect.TypeOf(x[i]) != reflect.TypeOf(seeds[0][i]) {
				t.Fatalf("argument %d is a %T, the seeds have a %T", i, x[i], seeds[0][i])
			}
		}
		if large(x) {
			t.Fatalf("an input beyond %d bytes", fuzzBytes)
		}
		s, b := x[0].(string), x[1].([]byte)
		for what, yes := range map[string]bool{"cut short": s == "GET /index HTT", "spliced": len(s) > 8 && s[:4] == "POST" && s[len(s)-4:] == "HTTP", "all bits": len(b) > 1 && b[0] == 255 && b[1] == 255,
			"largest byte": x[2].(uint8) == 255, "least integer": x[3].(int64) == -1<<63, "not a number": x[5].(float64) != x[5].(float64), "long": len(b) > 100} {
			if yes {
				found[what]++
			}
		}
	}
	if len(distinct) != n || len(found) != 7 {
		t.Errorf("%d different inputs of %d, found %v", len(distinct), n, found)
	}
}

// An ordinary test runs the seeds and the mutated inputs.
func FuzzTarget(tf *testing.F) {
	f := Fuzz(tf)
	f.Add("seed", []byte{1, 2}, uint32(7))
	f.Add("another", []byte{}, uint32(0))
	runs := 0
	f.Cleanup(func() {
		if want := 2 + fuzzCount(f); !fuzzing() && runs < want {
			f.Errorf("%d runs, want %d and more", runs, want)
		}
	})
	f.Fuzz(func(t *testing.T, s string, b []byte, n uint32) { runs++ })
}

// What is printed of a failing input is what Go's fuzzer reads.
func TestCorpusFile(t *testing.T) {
	args := []reflect.Value{reflect.ValueOf("a\n\xff"), reflect.ValueOf([]byte("é\x00")), reflect.ValueOf(uint8(3)), reflect.ValueOf(true), reflect.ValueOf(-1.5)}
	const want = "go test fuzz v1\nstring(\"a\\n\\xff\")\n[]byte(\"é\\x00\")\nuint8(3)\nbool(true)\nfloat64(-1.5)\n"
	if got := corpusFile(args); got != want {
		t.Errorf("%s", got)
	}
}
