package dataset

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"ck/internal/generate"
	"ck/internal/template"
	"ck/internal/testkit"
)

// tokenFiles are the files of a folder that are not the data.
func tokenFiles(t testing.TB, dir string) (list []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), "data.") || strings.HasSuffix(e.Name(), ".cktokens") {
			list = append(list, filepath.Join(dir, e.Name()))
		}
	}
	return list
}

// Tokens are kept beside the data, or where it is said, and taken from there: the set is the same.
func TestKept(t *testing.T) {
	m := builtin(t)
	path := write(t, "data.jsonl", `{"text": "One dog ran."}`+"\nbad\n"+`{"text": "Two dogs ran far away."}`+"\n")
	opt := options(8)
	opt.NoCache, opt.SkipBadLines, opt.Pack, opt.Val = false, 2, true, 0.5
	first := open(t, m, opt, path)
	if first.FromCache || first.CacheErr != nil || len(tokenFiles(t, filepath.Dir(path))) != 1 {
		t.Fatalf("%v; %v", first.CacheErr, tokenFiles(t, filepath.Dir(path)))
	}
	second := open(t, m, opt, path)
	if !second.FromCache || second.Hash() != first.Hash() || !reflect.DeepEqual(second.Stats, first.Stats) || second.Train() != first.Train() ||
		second.Val() != first.Val() ||
		!reflect.DeepEqual(second.Slot(3), first.Slot(3)) {
		t.Errorf("what was kept is %+v, %+v, not %+v, %+v", second.Train(), second.Stats, first.Train(), first.Stats)
	}
	if first.Stats.Skipped != 1 || len(first.Stats.Bad) != 1 {
		t.Errorf("%+v", first.Stats)
	}
	opt.CacheDir = t.TempDir()
	if s := open(t, m, opt, path); s.FromCache || len(tokenFiles(t, opt.CacheDir)) != 1 || s.Hash() != first.Hash() {
		t.Error("another folder is not used")
	}
	if !open(t, m, opt, path).FromCache {
		t.Error("another folder is not read")
	}
	opt.CacheDir = filepath.Join(opt.CacheDir, "missing")
	if s := open(t, m, opt, path); s.CacheErr == nil || s.Hash() != first.Hash() {
		t.Errorf("that there is no place for tokens is %v", s.CacheErr)
	}
	opt.NoCache, opt.CacheDir = true, t.TempDir()
	if s := open(t, m, opt, path); s.FromCache || s.CacheErr != nil || len(tokenFiles(t, opt.CacheDir)) != 0 {
		t.Error("tokens are kept that are not to be")
	}
}

// Tokens are made anew when anything that decides them is another.
func TestStale(t *testing.T) {
	m := builtin(t)
	dir := t.TempDir()
	a, b := filepath.Join(dir, "data.jsonl"), filepath.Join(dir, "data.txt")
	set := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	lines := `{"text": "One dog ran."}` + "\n" + asJSON(map[string]any{"messages": talk("", "zig", "ant")})
	set(a, lines)
	set(b, "Two dogs ran.\n")
	chatml, err := m.FindTemplate("chatml")
	if err != nil {
		t.Fatal(err)
	}
	source := chatml.Source()
	base := options(64)
	base.NoCache, base.Template = false, chatml
	sound := open(t, m, base, a, b)
	cached := func(opt Options, paths ...string) bool {
		t.Helper()
		return open(t, m, opt, paths...).FromCache
	}
	for name, change := range map[string]func(o *Options){
		"T":        func(o *Options) { o.Tokens = 65 },
		"too long": func(o *Options) { o.TooLong = Refuse },
		"held out": func(o *Options) { o.Val = 0.25 },
		"bad":      func(o *Options) { o.SkipBadLines = 1 },
		"template": func(o *Options) { o.Template = parsed(t, "t", source+"{# #}") },
		"vars":     func(o *Options) { o.Vars = template.Vars{"enable_thinking": false} },
		"date":     func(o *Options) { o.Now = time.Unix(1e9, 0).UTC() },
	} {
		opt := base
		change(&opt)
		if cached(opt, a, b) {
			t.Errorf("%s: what was kept is of another", name)
		}
		if !cached(opt, a, b) {
			t.Errorf("%s: the tokens were not kept", name)
		}
	}
	for name, change := range map[string]func(o *Options){"seed": func(o *Options) { o.Seed = 5 }, "pack": func(o *Options) { o.Pack = true }} {
		opt := base
		change(&opt)
		if !cached(opt, a, b) {
			t.Errorf("%s: does not change tokens, but they are made anew", name)
		}
	}
	if cached(base, b, a) || cached(base, a) {
		t.Error("what was kept is of other files")
	}
	other := vocabulary(t, "qwen2")
	if s := open(t, other, base, a, b); s.FromCache || reflect.DeepEqual(s.train.words, sound.train.words) {
		t.Error("what was kept is of another vocabulary")
	}
	if !cached(base, a, b) {
		t.Error("what was kept is gone")
	}
	n := len(tokenFiles(t, dir))
	set(b, "Two dogs sat.\n") // as long as before
	s := open(t, m, base, a, b)
	if s.FromCache || s.Hash() == sound.Hash() || !cached(base, a, b) {
		t.Error("what was kept is of other bytes")
	}
	if got := len(tokenFiles(t, dir)); got != n {
		t.Errorf("%d files of tokens, there were %d: data that changed does not replace its file", got, n)
	}
	set(a, lines+"bad\n")
	if _, err := Open(context.Background(), m, []string{a, b}, base); err == nil {
		t.Error("a bad line that came later is not seen")
	}
}

// Every damaged byte, every end and anything behind makes the file as good as none. It is replaced.
func TestDamaged(t *testing.T) {
	m := builtin(t)
	path := write(t, "data.txt", "One dog.\n<|endoftext|>\nTwo.\n<|endoftext|>\nThree cats.\n")
	opt := options(8)
	opt.NoCache, opt.Val = false, 0.5
	want := open(t, m, opt, path)
	if want.Val().Examples == 0 {
		t.Fatal("nothing is held out")
	}
	files, file := []file{{path: path}}, tokenFiles(t, filepath.Dir(path))[0]
	sound, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	base, err := want.decides(m, files)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := (&Set{opt: opt}).kept(context.Background(), m, file, base, files); !found || err != nil {
		t.Fatalf("the sound file is not taken: %v", err)
	}
	check := func(what string, b []byte) {
		t.Helper()
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s := &Set{opt: opt, epoch: -1}
		if found, err := s.kept(context.Background(), m, file, base, files); found || err != nil || s.train.words != nil {
			t.Errorf("%s: is taken (%v)", what, err)
		}
	}
	for i := range sound {
		for _, bit := range []byte{1, 0x80} {
			b := bytes.Clone(sound)
			b[i] ^= bit
			check("a bit", b)
		}
	}
	for i := range sound {
		check("an end", sound[:i])
	}
	check("more", append(bytes.Clone(sound), 0))
	s := open(t, m, opt, path)
	if s.FromCache || s.CacheErr != nil || s.Hash() != want.Hash() {
		t.Error("a damaged file is taken")
	}
	if b, err := os.ReadFile(file); err != nil || !bytes.Equal(b, sound) {
		t.Errorf("a damaged file is not replaced: %v", err)
	}
	if !open(t, m, opt, path).FromCache || len(tokenFiles(t, filepath.Dir(path))) != 1 {
		t.Errorf("there are %v", tokenFiles(t, filepath.Dir(path)))
	}
}

// A file of tokens that fits by its sum but not within itself is not taken either, and no size that it claims is allocated.
func FuzzTokens(f *testing.F) {
	fz := testkit.Fuzz(f)
	m, err := generate.Open("")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { m.Close() })
	dir := f.TempDir()
	path := filepath.Join(dir, "data.txt")
	if err := os.WriteFile(path, []byte("One dog.\n<|endoftext|>\nTwo.\n"), 0o644); err != nil {
		f.Fatal(err)
	}
	opt := options(8)
	opt.NoCache = false
	open(f, m, opt, path)
	b, err := os.ReadFile(tokenFiles(f, dir)[0])
	if err != nil {
		f.Fatal(err)
	}
	fz.Add(b)
	fz.Add([]byte(magic))
	fz.Fuzz(func(t *testing.T, b []byte) {
		in := bytes.NewReader(b)
		h, n, err := readHeader(in)
		if err != nil || n+h.Train.bytes()+h.Val.bytes() > int64(len(b)) {
			return
		}
		var l list
		if !l.read(in, h.Train, 512) {
			return
		}
		last := 0
		for _, e := range l.ends {
			if e <= last || e > len(l.words) {
				t.Fatalf("sequences end at %v of %d", l.ends, len(l.words))
			}
			last = e
		}
		for _, w := range l.words {
			if token(w) < 0 || token(w) >= 512 {
				t.Fatalf("token %d", w)
			}
		}
		var again bytes.Buffer
		if err := l.write(&again); err != nil || !bytes.Equal(again.Bytes(), b[n:n+h.Train.bytes()]) {
			t.Error("what was read is written otherwise")
		}
	})
}

// The form is said in bytes: who changes it changes the version.
func TestFormOfTokens(t *testing.T) {
	var l list
	l.add([]int32{5, ^6})
	l.add([]int32{^7, 8, ^9})
	var b bytes.Buffer
	if err := l.write(&b); err != nil {
		t.Fatal(err)
	}
	var want []byte
	for _, e := range []uint64{2, 5} {
		want = binary.LittleEndian.AppendUint64(want, e)
	}
	for _, w := range []int32{5, -7, 7, 8, -10} {
		want = binary.LittleEndian.AppendUint32(want, uint32(w))
	}
	if !bytes.Equal(b.Bytes(), want) || l.targets != 2 {
		t.Errorf("% x, expected % x", b.Bytes(), want)
	}
	for name, ends := range map[string][]uint64{
		"an empty sequence": {2, 2, 5}, "an end before the beginning": {3, 2, 5}, "beyond the tokens": {6, 7, 5}, "short of the tokens": {1, 2, 4},
	} {
		var raw []byte
		for _, e := range ends {
			raw = binary.LittleEndian.AppendUint64(raw, e)
		}
		if (&list{}).read(bytes.NewReader(append(raw, make([]byte, 20)...)), counts{3, 5, 1}, 10) {
			t.Errorf("%s: is taken", name)
		}
	}
	var many list // more than a block
	for i := range 9001 {
		many.add([]int32{int32(i), ^int32(i % 7), 3})
	}
	b.Reset()
	if err := many.write(&b); err != nil {
		t.Fatal(err)
	}
	var back list
	if !back.read(&b, many.counts(), 9001) || b.Len() != 0 || !reflect.DeepEqual(back.words, many.words) || !reflect.DeepEqual(back.ends, many.ends) ||
		back.targets != many.targets {
		t.Error("what was written is read otherwise")
	}
}

// Of a model in a folder, the tokens belong to the files of its tokenizer.
func TestStaleFolder(t *testing.T) {
	from := testkit.Data(t, "models/stories260K/hf")
	path := write(t, "data.txt", "One dog.\n")
	opt := options(32)
	opt.NoCache = false
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	cached := func() bool {
		t.Helper()
		m, err := generate.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		return open(t, m, opt, path).FromCache
	}
	if cached() || !cached() {
		t.Error("tokens are not kept")
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil { // the copy may be read-only
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), append(b, ' '), 0o644); err != nil {
			t.Fatal(err)
		}
		if cached() || !cached() {
			t.Errorf("%s: what was kept is of another", name)
		}
	}
}
