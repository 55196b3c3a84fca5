package synth

import (
	"container/heap"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"ck/internal/gguf"
)

// words are English words, the most frequent first: those of 46 children's books that are in the public domain (Kipling, Potter, Baum,
// Lang, Burnett and others, Project Gutenberg) without names, and from rank 2500 on some 250 of our time that such books lack.
//
//go:embed words.txt
var words string

// A family is what models of one origin have in common: how text is cut, which control tokens there are, how a chat is written.
type family struct {
	pre      string   // tokenizer.ggml.pre
	controls []string // in the order of their ids, behind the last token of text
	spare    string   // name of those that fill up, with its number
	spareOf  int32    // their type
	room     int      // of controls and spare ones, as in the real model
	text     int      // tokens of text that the real model has; 0: all but room
	bos, eos string
	addBOS   bool
	template string
}

// Token types of GGUF.
const (
	normalToken  = 1
	controlToken = 3
	unusedToken  = 5
)

var llama3 = family{pre: "llama-bpe",
	controls: []string{"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>",
		"<|reserved_special_token_2|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"},
	spare: "<|reserved_special_token_%d|>", spareOf: controlToken, room: 256, bos: "<|begin_of_text|>", eos: "<|eot_id|>", addBOS: true,
	template: `{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}`}

var qwen = family{pre: "qwen2", controls: []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, spare: "[PAD%d]", spareOf: unusedToken, room: 293,
	text: 151643, bos: "<|endoftext|>", eos: "<|im_end|>",
	template: `{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`}

// families are those of architectures; others are written as llama3.
var families = map[string]*family{"qwen2": &qwen, "qwen3": &qwen, "llama": &llama3}

// smallVocab is the number of tokens below which there are no spare ones.
const smallVocab = 4096

// setVocabulary writes a vocabulary of n tokens, n at least 512: byte-level BPE that merges English text to about four characters a
// token, the family's control tokens, and its chat template.
func setVocabulary(kv *gguf.Metadata, arch string, n int) {
	f := families[arch]
	if f == nil {
		f = &llama3
	}
	room := f.room
	if n < smallVocab {
		room = len(f.controls)
	}
	text := n - room
	if f.text > 0 && f.text+len(f.controls) <= n {
		text = f.text
	}
	b := vocabularyOf(text)
	tokens := slices.Grow(slices.Clone(b.text[:text]), n-text)
	kinds := make([]int32, text, n)
	for i := range kinds {
		kinds[i] = normalToken
	}
	id := map[string]uint32{}
	for _, name := range f.controls {
		id[name] = uint32(len(tokens))
		tokens, kinds = append(tokens, name), append(kinds, controlToken)
	}
	for i := 0; len(tokens) < n; i++ {
		if name := fmt.Sprintf(f.spare, i); !slices.Contains(f.controls, name) {
			tokens, kinds = append(tokens, name), append(kinds, f.spareOf)
		}
	}
	kv.Set("tokenizer.ggml.model", "gpt2")
	kv.Set("tokenizer.ggml.pre", f.pre)
	kv.Set("tokenizer.ggml.tokens", tokens)
	kv.Set("tokenizer.ggml.token_type", kinds)
	kv.Set("tokenizer.ggml.merges", slices.Clone(b.merges[:text-256]))
	kv.Set("tokenizer.ggml.bos_token_id", id[f.bos])
	kv.Set("tokenizer.ggml.eos_token_id", id[f.eos])
	kv.Set("tokenizer.ggml.add_bos_token", f.addBOS)
	kv.Set("tokenizer.chat_template", f.template)
}

// bpe is a list of byte-level tokens, each but the 256 bytes made from two earlier ones: token 256+i from those that merge i names. A
// shorter list is the beginning of a longer one.
type bpe struct {
	text   []string // in GPT-2's alphabet, where each byte is a printable character
	merges []string // "left right"

	ids   map[string]int32   // by text
	ranks map[[2]int32]int32 // of merges: the token that two make
	bytes [256]int32         // the tokens of single bytes
	limit int                // of text
}

var known struct {
	sync.Mutex
	b *bpe
}

// vocabularyOf is a list of n tokens at least. The longest so far is kept.
func vocabularyOf(n int) *bpe {
	known.Lock()
	defer known.Unlock()
	if known.b == nil || len(known.b.text) < n {
		known.b = newBPE(n)
	}
	return known.b
}

// newBPE makes a list of n tokens: bytes, merges trained on the words, then what real vocabularies have besides (capitals, numbers,
// punctuation, other scripts), and pairs of tokens for the rest.
func newBPE(n int) *bpe {
	b := &bpe{ids: map[string]int32{}, ranks: map[[2]int32]int32{}, limit: n}
	for i, c := range gpt2Alphabet() {
		b.bytes[i] = int32(len(b.text))
		b.ids[string(c)] = int32(len(b.text))
		b.text = append(b.text, string(c))
	}
	list := strings.Fields(words)
	b.train(list)
	for _, s := range marks() {
		b.add(s)
	}
	for _, w := range list {
		b.add(w)
		b.add(" " + capital(w))
		b.add(capital(w))
	}
	for _, w := range list[:min(len(list), 3000)] {
		b.add(" " + strings.ToUpper(w))
	}
	for i := range 1000 {
		b.add(fmt.Sprint(i))
		b.add(fmt.Sprintf("%03d", i))
	}
	for _, r := range [][2]rune{{0xa1, 0x24f}, {0x391, 0x3c9}, {0x410, 0x44f}, {0x5d0, 0x5ea}, {0x621, 0x64a}, {0x2010, 0x2027}, {0x3041, 0x30fe}, {0x4e00, 0x62ff}} {
		for c := r[0]; c <= r[1]; c++ {
			b.add(string(c))
		}
	}
	for _, end := range []string{"s", "ed", "ing", "er", "ers", "ly", "ness", "able", "al", "ment", "ful", "less", "ize", "ation"} {
		for _, w := range list {
			b.add(" " + w + end)
		}
	}
	for sum := 0; len(b.text) < n; sum++ { // pairs, frequent ones first
		for i := max(0, sum-len(list)+1); i <= min(sum, len(list)-1); i++ {
			b.add(" " + list[i] + list[sum-i])
		}
	}
	return b
}

// gpt2Alphabet gives each byte the character that stands for it (OpenAI's encoder.py, bytes_to_unicode): itself where it is printable,
// else one from U+0100 on.
func gpt2Alphabet() [256]rune {
	var out [256]rune
	next := rune(256)
	for i := range out {
		switch {
		case i >= '!' && i <= '~', i >= 0xa1 && i <= 0xac, i >= 0xae:
			out[i] = rune(i)
		default:
			out[i] = next
			next++
		}
	}
	return out
}

// marks is punctuation as texts have it, with what stands before and behind, white space and the ends of contractions.
func marks() []string {
	var out []string
	for _, s := range strings.Fields(`. , ; : ! ? " ' ( ) [ ] { } - -- --- ... / \ = == != <= >= += -= -> => < > + * ** # ## ### & && | || % $ @ _ __ ~ ^ // /* */ () [] {} `) {
		out = append(out, " "+s, s)
	}
	for _, a := range []string{".", ",", "!", "?", ":", ";", "-", "--", ")", "("} {
		for _, z := range []string{`"`, "'", ")", "\n", "\n\n", `"` + "\n", `"` + "\n\n"} {
			out = append(out, a+z)
		}
	}
	for _, s := range []string{"s", "t", "re", "ve", "m", "ll", "d"} {
		out = append(out, "'"+s)
	}
	for n := 2; n <= 32; n++ {
		out = append(out, strings.Repeat(" ", n))
	}
	for n := 2; n <= 8; n++ {
		out = append(out, strings.Repeat("\n", n), strings.Repeat("\t", n))
	}
	return out
}

func capital(w string) string { return strings.ToUpper(w[:1]) + w[1:] }

// merge appends the token that two make and returns it; -1 where the list is full, or has the token by another way.
func (b *bpe) merge(l, r int32) int32 {
	text := b.text[l] + b.text[r]
	if _, ok := b.ids[text]; ok || len(b.text) >= b.limit {
		return -1
	}
	id := int32(len(b.text))
	b.text, b.merges = append(b.text, text), append(b.merges, b.text[l]+" "+b.text[r])
	b.ids[text], b.ranks[[2]int32{l, r}] = id, id
	return id
}

// add makes text a token, from the pieces that the merges so far leave of it.
func (b *bpe) add(text string) {
	if len(b.text) >= b.limit {
		return
	}
	p := b.encode(text)
	for at := p[0]; len(p) > 1; p = p[1:] {
		if at = b.merge(at, p[1]); at < 0 {
			return
		}
	}
}

// encode merges the bytes of a text, the earliest merge first.
func (b *bpe) encode(text string) []int32 {
	p := make([]int32, len(text))
	for i := range p {
		p[i] = b.bytes[text[i]]
	}
	for {
		at, best := -1, int32(0)
		for i := range len(p) - 1 {
			if id, ok := b.ranks[[2]int32{p[i], p[i+1]}]; ok && (at < 0 || id < best) {
				at, best = i, id
			}
		}
		if at < 0 {
			return p
		}
		p[at] = best
		p = slices.Delete(p, at+1, at+2)
	}
}

// train merges the most frequent pair of neighbours in the words, each with a space before it, again and again until each word is one
// token. Word k has the frequency 1/(k+3) (Zipf 1949). Ties go to the pair of the lower tokens.
func (b *bpe) train(list []string) {
	const scale = 1 << 30
	t := trainer{b: b, count: map[[2]int32]int64{}, in: map[[2]int32][]int32{}}
	for k, w := range list {
		t.words, t.weight = append(t.words, b.encode(" "+w)), append(t.weight, scale/int64(k+3))
		t.note(int32(k), 1)
	}
	for p, n := range t.count {
		t.queue = append(t.queue, pairCount{p, n})
	}
	heap.Init(&t.queue)
	for len(t.queue) > 0 && len(b.text) < b.limit {
		top := heap.Pop(&t.queue).(pairCount)
		switch n := t.count[top.pair]; {
		case n == top.n && n > 0:
			t.merge(top.pair)
		case n > 0 && n < top.n: // it has become rarer since
			heap.Push(&t.queue, pairCount{top.pair, n})
		}
	}
}

// trainer is the state of train.
type trainer struct {
	b      *bpe
	words  [][]int32
	weight []int64
	count  map[[2]int32]int64
	in     map[[2]int32][]int32 // words that have, or had, the pair
	queue  pairQueue
}

// note counts the pairs of a word, or takes them back.
func (t *trainer) note(k int32, sign int64) {
	for i := range len(t.words[k]) - 1 {
		p := [2]int32{t.words[k][i], t.words[k][i+1]}
		t.count[p] += sign * t.weight[k]
		if l := t.in[p]; sign > 0 && (len(l) == 0 || l[len(l)-1] != k) {
			t.in[p] = append(l, k)
		}
	}
}

// merge makes a token of a pair, wherever it stands.
func (t *trainer) merge(p [2]int32) {
	id := t.b.merge(p[0], p[1])
	if id < 0 {
		return
	}
	touched := t.in[p]
	delete(t.in, p)
	fresh := map[[2]int32]bool{}
	for _, k := range touched {
		w := t.words[k]
		if !hasPair(w, p) {
			continue
		}
		t.note(k, -1)
		out := w[:0]
		for i := 0; i < len(w); i++ {
			if i+1 < len(w) && w[i] == p[0] && w[i+1] == p[1] {
				out = append(out, id)
				i++
				continue
			}
			out = append(out, w[i])
		}
		t.words[k] = out
		t.note(k, 1)
		for i := range len(out) - 1 {
			if out[i] == id || out[i+1] == id {
				fresh[[2]int32{out[i], out[i+1]}] = true
			}
		}
	}
	delete(t.count, p)
	for q := range fresh {
		heap.Push(&t.queue, pairCount{q, t.count[q]})
	}
}

func hasPair(w []int32, p [2]int32) bool {
	for i := range len(w) - 1 {
		if w[i] == p[0] && w[i+1] == p[1] {
			return true
		}
	}
	return false
}

// pairCount is a pair with its frequency when it was queued.
type pairCount struct {
	pair [2]int32
	n    int64
}

// pairQueue has the most frequent pair at its head.
type pairQueue []pairCount

func (q pairQueue) Len() int      { return len(q) }
func (q pairQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q pairQueue) Less(i, j int) bool {
	if q[i].n != q[j].n {
		return q[i].n > q[j].n
	}
	return slices.Compare(q[i].pair[:], q[j].pair[:]) < 0
}
func (q *pairQueue) Push(x any) { *q = append(*q, x.(pairCount)) }
func (q *pairQueue) Pop() any {
	l := len(*q) - 1
	x := (*q)[l]
	*q = (*q)[:l]
	return x
}
