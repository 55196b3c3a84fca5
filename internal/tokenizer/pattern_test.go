package tokenizer

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"

	"ck/internal/testkit"
)

// preTable is pre.json: the names and expressions of llama.cpp.
type preTable struct {
	PreTypes map[string]struct {
		Regex    []string `json:"regex"`
		Original []string `json:"original_regex"`
		Bytes    bool     `json:"byte_encode"`
	} `json:"pre_types"`
	Names map[string]struct {
		PreType      string  `json:"pre_type"`
		IgnoreMerges bool    `json:"ignore_merges"`
		AddBOS       bool    `json:"add_bos"`
		BOS          *string `json:"special_bos_id"`
		Escape       bool    `json:"escape_whitespaces"`
	} `json:"names"`
}

func readPreTable(t testing.TB) preTable {
	t.Helper()
	b, err := os.ReadFile(testkit.Data(t, "tokenizers/pre.json"))
	if err != nil {
		t.Fatal(err)
	}
	var p preTable
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// randomTexts are short strings in which the things that patterns look for are frequent, and longer ones over all of Unicode.
func randomTexts(n int) []string {
	rng := rand.New(rand.NewPCG(7, 11))
	pool := []string{" ", " ", "  ", "\n", "\r", "\r\n", "\t", "\u00a0", "\u3000", "\u0085", "'", "'s", "'T", "'Re", "'LL", "'ll", "a", "B", "e", "é",
		"e\u0301", "ǅ", "ʰ", "ß", "Ω", "ж", "Ж", "中", "文", "ひ", "カ", "한", "ᄀ", "ก", "ำ", "क", "ि", "्", "ب", "َ", "1", "2", "345", "1234567",
		"٣", "Ⅷ", "½", "²", "!", "?", "(", ")", "/", "\\", "-", "_", "$", "+", "<", "=", ">", "^", "~", "|", "`", "。", "，", "…", "“", "—", "𝒳", "𞤀",
		"😀", "👩\u200d💻", "\u200b", "\ufeff", "\u0000", "\u0007", "\ufffd", "ﬀ", "<sentinel:12>", "IMGIMGABZ", "IMGIMGJZ", "word", "Camel", "UPPER", "    "}
	texts := []string{"", " ", "\n", "\r\n\r\n", "1234567890", "  1234  ", strings.Repeat(" ", 700) + "x", strings.Repeat(" ", 1100),
		strings.Repeat(" ", 600) + "\n" + strings.Repeat(" ", 37)}
	for range n {
		var b strings.Builder
		for range 1 + rng.IntN(24) {
			b.WriteString(pool[rng.IntN(len(pool))])
		}
		texts = append(texts, b.String())
		b.Reset()
		for range 1 + rng.IntN(12) {
			r := rune(rng.IntN(0x3000))
			if rng.IntN(3) == 0 {
				r = rune(rng.IntN(unicode.MaxRune))
			}
			if !utf8.ValidRune(r) || r == 'ſ' { // regexp2 does not fold ſ to s
				r = 'x'
			}
			b.WriteString(strings.Repeat(string(r), 1+rng.IntN(2)))
			if rng.IntN(4) == 0 {
				b.WriteString(pool[rng.IntN(len(pool))])
			}
		}
		texts = append(texts, b.String())
	}
	return texts
}

// splitRegexp2 is what matcher.split must give.
func splitRegexp2(t testing.TB, re *regexp2.Regexp, text string) []string {
	t.Helper()
	var out []string
	runes := []rune(text)
	gap := 0
	m, err := re.FindRunesMatch(runes)
	for ; m != nil && err == nil; m, err = re.FindNextMatch(m) {
		if m.Index > gap {
			out = append(out, string(runes[gap:m.Index]))
		}
		if m.Length > 0 {
			out = append(out, string(runes[m.Index:m.Index+m.Length]))
		}
		gap = m.Index + m.Length
	}
	if err != nil {
		t.Fatal(err)
	}
	if gap < len(runes) {
		out = append(out, string(runes[gap:]))
	}
	return out
}

func splitOurs(m *matcher, text string) []string {
	var out []string
	for _, s := range m.split(nil, text, 0, len(text)) {
		out = append(out, text[s.lo:s.hi])
	}
	return out
}

func compareWithRegexp2(t *testing.T, ours, theirs string, texts []string) {
	t.Helper()
	p, err := compilePattern(ours)
	if err != nil {
		t.Fatalf("%q: %v", ours, err)
	}
	re, err := regexp2.Compile(theirs, regexp2.None)
	if err != nil {
		t.Fatalf("regexp2: %q: %v", theirs, err)
	}
	m := newMatcher(p)
	for _, text := range texts {
		want := splitRegexp2(t, re, text)
		if got := splitOurs(m, text); !slices.Equal(got, want) {
			t.Fatalf("%q on %q:\n got %q\nwant %q", ours, text, got, want)
		}
	}
}

// Every expression of pre.json, in both forms, and every expression of our own table.
func TestPatternsAgreeWithRegexp2(t *testing.T) {
	texts := randomTexts(400)
	seen := map[string]bool{}
	check := func(expr string) {
		if seen[expr] || expr == `\p{AFMoE_digits}` { // the name of a function of llama.cpp
			return
		}
		seen[expr] = true
		theirs := dialect(expr)
		switch expr {
		case exprBailing: // regexp2 has no possessive repetition; here it makes no difference
			theirs = strings.NewReplacer("?+", "?", "++", "+").Replace(expr)
		case exprKimi: // nor intersection: [A&&[^B]] is (?!B)[A]
			theirs = strings.NewReplacer("["+upper+`&&[^\p{Han}]]`, `(?:(?!\p{Han})[`+upper+`])`,
				"["+lower+`&&[^\p{Han}]]`, `(?:(?!\p{Han})[`+lower+`])`).Replace(expr)
		case exprHanKana, exprHan, exprScripts, exprUnspaced, exprCased, exprWide: // \x{..} of five digits
			theirs = unescape(expr)
		}
		compareWithRegexp2(t, expr, theirs, texts)
	}
	for _, p := range readPreTable(t).PreTypes {
		for _, expr := range slices.Concat(p.Regex, p.Original) {
			check(expr)
		}
	}
	n := len(seen)
	for _, p := range preTypes {
		for _, expr := range p.exprs {
			check(expr)
		}
	}
	if n < 50 {
		t.Fatalf("%d expressions in pre.json, want more than 50", n)
	}
	t.Logf("%d expressions of pre.json and %d of our own, %d texts each", n, len(seen)-n, len(texts))
}

// dialect writes \b and $ as Oniguruma means them.
func dialect(expr string) string {
	const w = `[\p{L}\p{Nl}\p{M}\p{Nd}\p{Pc}\u24b6-\u24e9]`
	expr = strings.ReplaceAll(expr, `\b`, `(?:(?<=`+w+`)(?!`+w+`)|(?<!`+w+`)(?=`+w+`))`)
	return strings.ReplaceAll(expr, `\s+$`, `\s+(?m:$)`)
}

// unescape writes \x{..} as the character itself.
func unescape(expr string) string {
	var b strings.Builder
	for i := 0; i < len(expr); {
		if strings.HasPrefix(expr[i:], `\x{`) {
			p := &patternParser{src: expr, pos: i + 2}
			r, err := p.hex(2)
			if err != nil {
				panic(err)
			}
			b.WriteRune(r)
			i = p.pos
			continue
		}
		b.WriteByte(expr[i])
		i++
	}
	return b.String()
}

// The table of pre-tokenizers against pre.json: each of its names, the flags, and the cut of random texts by all expressions
// in turn (ours against the original where pre.json has one, else what llama.cpp runs).
func TestPreTypesAgreeWithTable(t *testing.T) {
	table := readPreTable(t)
	texts := randomTexts(120)
	count := 0
	for _, p := range preTypes {
		count += len(strings.Fields(p.names))
	}
	if count != len(table.Names) || len(table.Names) != 91 {
		t.Errorf("%d names, pre.json has %d, want 91", count, len(table.Names))
	}
	runs := map[string]map[string][][]string{}
	for name, want := range table.Names {
		got, ok := findPreType(name)
		if !ok {
			t.Errorf("%s is missing", name)
			continue
		}
		if got.ignoreMerges != want.IgnoreMerges || got.addBOS != want.AddBOS || got.noBOS != (want.BOS != nil) ||
			got.chars == table.PreTypes[want.PreType].Bytes || name != "whitespace" && got.chars != want.Escape {
			t.Errorf("%s: flags %+v, want %+v", name, got, want)
		}
		exprs := slices.Clone(table.PreTypes[want.PreType].Regex)
		if o := table.PreTypes[want.PreType].Original; len(o) > 0 {
			copy(exprs[len(exprs)-len(o):], o)
		}
		if exprs[0] == `\p{AFMoE_digits}` || name == "kimi-k2" {
			exprs = nil // see TestDigitGroups and TestKimi
		}
		if key := want.PreType + "|" + got.names; exprs != nil && runs[key] == nil {
			runs[key] = map[string][][]string{"ours": splitAll(t, got.exprs, texts), "theirs": splitAll(t, exprs, texts)}
			for i := range texts {
				if a, b := runs[key]["ours"][i], runs[key]["theirs"][i]; !slices.Equal(a, b) {
					t.Fatalf("%s on %q:\n got %q\nwant %q", name, texts[i], a, b)
				}
			}
		}
	}
}

func splitAll(t testing.TB, exprs []string, texts []string) [][]string {
	t.Helper()
	var ms []*matcher
	for _, e := range exprs {
		p, err := compilePattern(e)
		if err != nil {
			t.Fatalf("%q: %v", e, err)
		}
		ms = append(ms, newMatcher(p))
	}
	var out [][]string
	for _, text := range texts {
		pieces := []string{text}
		for _, m := range ms {
			var next []string
			for _, p := range pieces {
				next = append(next, splitOurs(m, p)...)
			}
			pieces = next
		}
		out = append(out, pieces)
	}
	return out
}

// afmoe cuts digits of all scripts into groups of three from the right, of a run of any length.
func TestDigitGroups(t *testing.T) {
	p, _ := findPreType("afmoe")
	for text, want := range map[string][]string{
		"1": {"1"}, "12": {"12"}, "123": {"123"}, "1234": {"1", "234"}, "12345": {"12", "345"}, "123456": {"123", "456"},
		"x1234567 89": {"x", "1", "234", "567", " ", "89"}, "٣٣٣٣½": {"٣٣", "٣٣½"}, "1a2345": {"1", "a", "2", "345"},
	} {
		if got := splitAll(t, p.exprs[:1], []string{text})[0]; !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestKimi(t *testing.T) {
	p, _ := findPreType("kimi-k2")
	for text, want := range map[string][]string{
		"Hello世界 worldあ 1234": {"Hello", "世界", " worldあ", " ", "123", "4"},
		"I'LL don't":          {"I'LL", " don't"},
	} {
		if got := splitAll(t, p.exprs, []string{text})[0]; !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestPatternSyntax(t *testing.T) {
	for _, expr := range []string{`a|ab`, `ab|a`, `a*?b`, `a{2,3}?`, `(?:ab?)+c`, `\bw\w*\b`, `\B.`, `^a|b$`, `x(?=\d+;)`, `x(?!\d+;)\d`, `(?=(?!a)b|c)\w+`,
		`[\w-]+`, `\P{L}+`, `\p{^L}+`, `[]a]+`, `a{,2}b`, `{a`, `(?i)ab`, `(?i:ab)c`, `((a|b)(c|d){1,2})+`, `a??b`, `\x41\u0042`} {
		theirs := strings.NewReplacer(`\p{^L}`, `\P{L}`, `{,2}`, `{0,2}`, `^`, `(?m:^)`, `$`, `(?m:$)`).Replace(expr)
		if strings.Contains(expr, "[^") || strings.Contains(expr, `{^`) {
			theirs = strings.Replace(expr, `\p{^L}`, `\P{L}`, 1)
		}
		texts := []string{"", "a", "ab", "abab", "aab\nb\na", "abc abcd bdacad", "word w x1; x12 x123; xy", "AB]a-b_c {a aB", "é1 2ñ-", "aabb ABab\nb"}
		compareWithRegexp2(t, expr, theirs, texts)
	}
	m := newMatcher(mustCompile(t, exprQwen2))
	if got := splitOurs(m, "it'ſ I'S"); !slices.Equal(got, []string{"it", "'ſ", " I", "'S"}) {
		t.Errorf("case folding of ſ: %q", got)
	}
	m = newMatcher(mustCompile(t, `a++b|a?+ab|\s++$|[\p{L}&&[^a-z]]+`))
	if got := splitOurs(m, "aab aa Ab  x"); !slices.Equal(got, []string{"aab", " aa ", "A", "b  x"}) {
		t.Errorf("possessive repetition and intersection: %q", got)
	}
	for _, bad := range []string{`(`, `)`, `[a`, `a**b(`, `(?<=a)b`, `(?<n>a)`, `\1`, `\p{Nope}`, `\p`, `\`, `[b-a]`, `(a*)*`, `(a|b?)+`, `a{2,1}`, `a{9999}`,
		`(a{1000}){1000}`, `(?:ab)++`, `a{1,2}+`, `*`, `\b+`, "\xff", `[[:alpha:]]`, strings.Repeat("(", 500), `\x`, `\u12`, `\x{110000}`, `\p{`} {
		if _, err := compilePattern(bad); err == nil {
			t.Errorf("%q compiles", bad)
		}
	}
}

func mustCompile(t testing.TB, expr string) *pattern {
	t.Helper()
	p, err := compilePattern(expr)
	if err != nil {
		t.Fatalf("%q: %v", expr, err)
	}
	return p
}

// The work of all matches together is linear for every pattern of the table, also on texts that make a backtracking matcher
// or repeated searches quadratic, and the automaton stays small.
func TestMatchingIsLinear(t *testing.T) {
	const n = 1 << 18
	exprs := map[string]bool{`(?:a|aa|aaa)+b`: true, `(x+x+)+y`: true, `\s*[\r\n]|\s`: true, `(?=a*b)a|.`: true}
	for _, p := range preTypes {
		for _, e := range p.exprs {
			exprs[e] = true
		}
	}
	unit := []string{" ", "a", "aB", "1", " 1", "\n \n", "'", "'l", "中", "x", "ก็", " \u0301", "\xff"}
	for e := range exprs {
		m := newMatcher(mustCompile(t, e))
		for _, u := range unit {
			text := strings.Repeat(u, n/len(u)/8)
			if e == exprJais2 || u == " " || u == "a" {
				text = strings.Repeat(u, n/len(u))
			}
			m.steps = 0
			m.split(nil, text, 0, len(text))
			if m.steps > 4*len(text) {
				t.Errorf("%q on %d times %q: %d steps for %d bytes", e, n/len(u), u, m.steps, len(text))
			}
		}
		if held := m.bytesHeld(); held > 64<<20 {
			t.Errorf("%q: the automaton holds %d bytes", e, held)
		}
	}
}

// Texts longer than a segment are cut as if they were short ones, and a flushed automaton gives the same.
func TestLongTexts(t *testing.T) {
	texts := randomTexts(2000)
	long := strings.Join(texts, "")
	for _, e := range []string{exprLlama3, exprGPT4o, exprJais2, `\d{1,3}(?=(?:\d{3})*\b)`} {
		re := regexp2.MustCompile(dialect(e), regexp2.None)
		want := splitRegexp2(t, re, long)
		m := newMatcher(mustCompile(t, e))
		if got := splitOurs(m, long); !slices.Equal(got, want) {
			t.Fatalf("%q: long text is cut differently", e)
		}
	}
	// A pattern whose automaton is exponential in its length: more states than are kept.
	m := newMatcher(mustCompile(t, `[ab]{14}a[ab]*c`))
	rng := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for range 200000 {
		b.WriteByte("ab"[rng.IntN(2)])
	}
	text := "ddd" + b.String() + "c" + strings.Repeat("d", segmentBytes)
	got := splitOurs(m, text)
	if len(got) < 2 || got[0] != "ddd" || m.bytesHeld() > 256<<20 {
		t.Errorf("%d pieces, %d bytes held", len(got), m.bytesHeld())
	}
}

func FuzzPattern(tf *testing.F) {
	f := testkit.Fuzz(tf)
	for _, p := range preTypes {
		f.Add(p.exprs[len(p.exprs)-1], "Hello, wörld 123\n")
	}
	f.Fuzz(func(t *testing.T, expr, text string) {
		if len(expr) > 200 || len(text) > 500 {
			return
		}
		p, err := compilePattern(expr)
		if err != nil {
			return
		}
		if joined := strings.Join(splitOurs(newMatcher(p), text), ""); joined != text {
			t.Errorf("%q on %q: pieces join to %q", expr, text, joined)
		}
	})
}
