package testkit

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	// fuzzRuns is the number of mutated inputs of a target in an ordinary test; CK_TEST_FUZZ multiplies it.
	fuzzRuns = 200
	// fuzzBytes bounds the inputs that are mutated, here and by Go's fuzzer. Larger seeds are run as they are, in ordinary tests alone.
	fuzzBytes = 16 << 10
)

// F is a fuzz target that ordinary tests fuzz as well: beside the seeds and the corpus they run inputs made from the seeds by a fixed
// sequence of mutations. So they find what lies near the seeds, and one tree has one outcome. Chance is left to make fuzz, which is
// Go's own fuzzer.
type F struct {
	*testing.F
	seeds [][]any
}

// Fuzz makes f such a target; its Add and Fuzz are to be called in place of f's.
func Fuzz(f *testing.F) *F { return &F{F: f} }

// fuzzing reports whether Go's fuzzer runs.
func fuzzing() bool { return flag.Lookup("test.fuzz").Value.String() != "" }

// Add adds a seed.
func (f *F) Add(args ...any) {
	f.Helper()
	if large(args) {
		if !fuzzing() {
			f.F.Add(args...)
		}
		return
	}
	f.seeds = append(f.seeds, args)
	f.F.Add(args...)
}

// Fuzz runs the property, func(*testing.T, ...) with the types of the seeds. An input of which it fails is printed as a file of Go's corpus.
func (f *F) Fuzz(property any) {
	f.Helper()
	if fuzzing() {
		f.F.Fuzz(property)
		return
	}
	for _, input := range mutations(f.Name(), f.seeds, fuzzCount(f)) {
		f.F.Add(input...)
	}
	v := reflect.ValueOf(property)
	f.F.Fuzz(reflect.MakeFunc(v.Type(), func(args []reflect.Value) []reflect.Value {
		t, passed := args[0].Interface().(*testing.T), false
		defer func() {
			if !passed || t.Failed() {
				t.Logf("as a file in testdata/fuzz/%s:\n%s", f.Name(), corpusFile(args[1:]))
			}
		}()
		v.Call(args)
		passed = true
		return nil
	}).Interface())
}

// fuzzCount is the number of mutated inputs of this run.
func fuzzCount(t testing.TB) int {
	n := fuzzRuns
	if s := os.Getenv("CK_TEST_FUZZ"); s != "" {
		by, err := strconv.Atoi(s)
		if err != nil || by < 0 || by > 1e6 {
			t.Fatalf("CK_TEST_FUZZ=%s: wants a number from 0 to 1000000, by which %d inputs of each fuzz target are multiplied", s, fuzzRuns)
		}
		n *= by
	}
	if testing.Short() {
		n /= 10
	}
	return n
}

// corpusFile is the input as a file of Go's corpus (encoding of internal/fuzz, version 1).
func corpusFile(args []reflect.Value) string {
	var b bytes.Buffer
	b.WriteString("go test fuzz v1\n")
	for _, a := range args {
		switch x := a.Interface().(type) {
		case string:
			fmt.Fprintf(&b, "string(%q)\n", x)
		case []byte:
			fmt.Fprintf(&b, "[]byte(%q)\n", x)
		default:
			fmt.Fprintf(&b, "%T(%v)\n", x, x)
		}
	}
	return b.String()
}

// large reports whether a seed is beyond what is mutated.
func large(args []any) bool {
	n := 0
	for _, a := range args {
		if v := reflect.ValueOf(a); v.Kind() == reflect.String || v.Kind() == reflect.Slice {
			n += v.Len()
		}
	}
	return n > fuzzBytes
}

// mutations makes n different inputs out of the seeds (fewer where there are not so many): the same ones for the same name and seeds, in
// whatever order these come.
func mutations(name string, seeds [][]any, n int) (out [][]any) {
	if len(seeds) == 0 {
		return nil
	}
	h := fnv.New64a()
	h.Write([]byte(name))
	m := mutator{rand.New(rand.NewPCG(h.Sum64(), 1))}
	seeds = slices.Clone(seeds)
	slices.SortFunc(seeds, func(a, b []any) int { return strings.Compare(fmt.Sprintf("%q", a), fmt.Sprintf("%q", b)) })
	seen := map[string]bool{}
	for range 10 * n {
		if len(out) == n {
			break
		}
		x := slices.Clone(seeds[m.IntN(len(seeds))])
		for range 1 + m.IntN(6) {
			i := m.IntN(len(x))
			x[i] = m.mutate(x[i], seeds[m.IntN(len(seeds))][i])
		}
		if key := fmt.Sprintf("%q", x); !seen[key] && !large(x) {
			seen[key] = true
			out = append(out, x)
		}
	}
	return out
}

type mutator struct{ *rand.Rand }

// mutate changes v a little; other is another seed's value in its place.
func (m mutator) mutate(v, other any) any {
	switch x := reflect.ValueOf(v); x.Kind() {
	case reflect.String:
		return string(m.bytes([]byte(v.(string)), []byte(other.(string))))
	case reflect.Slice:
		return m.bytes(slices.Clone(v.([]byte)), other.([]byte))
	case reflect.Bool:
		return !v.(bool)
	case reflect.Float32, reflect.Float64:
		odd := []float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, math.SmallestNonzeroFloat64, x.Float() / 2, m.NormFloat64()}
		return reflect.ValueOf(odd[m.IntN(len(odd))]).Convert(x.Type()).Interface()
	default: // integers
		var n int64
		if x.CanUint() {
			n = int64(x.Uint())
		} else {
			n = x.Int()
		}
		switch m.IntN(4) {
		case 0:
			n += int64(m.IntN(65) - 32)
		case 1:
			n ^= 1 << m.IntN(64)
		case 2:
			n = oddInts[m.IntN(len(oddInts))]
		default:
			n = int64(m.Uint64())
		}
		return reflect.ValueOf(n).Convert(x.Type()).Interface()
	}
}

// oddInts are where numbers of some width end.
var oddInts = []int64{0, 1, -1, 16, 32, 64, 100, 127, 128, 255, 256, 1000, 1024, 4096, 32767, 32768, 65535, 65536, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32,
	math.MaxUint32 + 1, math.MaxInt64, math.MinInt64, math.MinInt32}

// span is a piece of b, short more often than long.
func (m mutator) span(b []byte) (lo, hi int) {
	if len(b) == 0 {
		return 0, 0
	}
	lo = m.IntN(len(b))
	return lo, lo + 1 + m.IntN(min(len(b)-lo, 1<<m.IntN(10)))
}

// bytes makes one change to b, which it may overwrite.
func (m mutator) bytes(b, other []byte) []byte {
	lo, hi := m.span(b)
	at := m.IntN(len(b) + 1)
	switch m.IntN(12) {
	case 0: // delete a piece
		return slices.Delete(b, lo, hi)
	case 1: // a piece twice, or many times
		return slices.Insert(b, at, bytes.Repeat(slices.Clone(b[lo:hi]), 1<<m.IntN(5))...)
	case 2: // a piece of another seed
		lo, hi := m.span(other)
		return slices.Insert(b, at, other[lo:hi]...)
	case 3: // begins as this and ends as another seed
		_, hi := m.span(other)
		return append(b[:at], other[hi:]...)
	case 4: // cut off
		return b[:at]
	case 5: // bytes of no sense
		junk := make([]byte, 1+m.IntN(8))
		for i := range junk {
			junk[i] = byte(m.Uint32())
		}
		return slices.Insert(b, at, junk...)
	case 6: // a number as text
		return slices.Insert(b, at, strconv.AppendInt(nil, oddInts[m.IntN(len(oddInts))], 10)...)
	}
	if len(b) == 0 {
		return append(b, byte(m.Uint32()))
	}
	switch i := m.IntN(len(b)); m.IntN(5) {
	case 0: // a bit
		b[i] ^= 1 << m.IntN(8)
	case 1: // a byte
		b[i] = byte(m.Uint32())
	case 2: // two bytes change places
		b[i], b[lo] = b[lo], b[i]
	case 3: // a byte up or down
		b[i] += byte(m.IntN(33) - 16)
	default: // a number of 2, 4 or 8 bytes
		var w [8]byte
		n := uint64(oddInts[m.IntN(len(oddInts))])
		binary.LittleEndian.PutUint64(w[:], n)
		width := 2 << m.IntN(3)
		if m.IntN(2) == 0 {
			slices.Reverse(w[:width])
		}
		copy(b[i:], w[:width])
	}
	return b
}
