package quality

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// BaseTop is how many of the most probable tokens a base keeps of each position; the rest is kept as one probability.
const BaseTop = 64

// Position is what is kept of the distribution at one position: enough to compare another model's with.
type Position struct {
	Token   int32     // that stands next in the text
	LogProb float32   // of Token
	IDs     []int32   // most probable first
	Logs    []float32 // their log probabilities
}

// At makes the Position of logits [vocabulary] where token stands next. It keeps at most top tokens.
func At(logits []float32, token int32, top int) Position {
	norm := logNorm(logits)
	top = min(top, len(logits))
	p := Position{Token: token, LogProb: float32(float64(logits[token]) - norm)}
	// A small heap would do as well; the threshold is passed by few of 150 k tokens.
	best := make([]int32, 0, top+1)
	for i, x := range logits {
		if len(best) == top && x <= logits[best[top-1]] {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, x, func(id int32, x float32) int {
			if logits[id] >= x { // equal ones stay in the order of their ids
				return -1
			}
			return 1
		})
		best = slices.Insert(best, at, int32(i))
		best = best[:min(len(best), top)]
	}
	p.IDs = best
	for _, id := range best {
		p.Logs = append(p.Logs, float32(float64(logits[id])-norm))
	}
	return p
}

// logNorm is log(sum(exp(x))).
func logNorm(x []float32) float64 {
	top := math.Inf(-1)
	for _, v := range x {
		top = max(top, float64(v))
	}
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	return top + math.Log(sum)
}

// Tally compares a model's logits with a text, and with a base if there is one. Blocks of the text are independent
// evaluations: the intervals are those of means over blocks, since tokens of one block are not independent of each
// other.
type Tally struct {
	blocks  []blockSums
	Tokens  int
	hasBase bool
	cut     bool      // the base is a kept one: it has the most probable tokens only
	klds    []float64 // of each position
}

// blockSums are the sums over a block's positions.
type blockSums struct {
	n                     int
	nll, kld, square, top float64
}

// Block begins the next block of the text.
func (q *Tally) Block() { q.blocks = append(q.blocks, blockSums{}) }

// Add takes the logits at a position whose next token is token; base is the base's position, or nil.
//
// The KL divergence is that of the base's distribution to this one, over the base's top tokens and all others taken
// as one: never more than over all tokens, and the less below it the less mass the others have.
func (q *Tally) Add(logits []float32, token int32, base *Position) {
	norm := logNorm(logits)
	logProb := float64(logits[token]) - norm
	q.count(logProb)
	if base == nil {
		return
	}
	q.hasBase, q.cut = true, q.cut || len(base.IDs) < len(logits)
	kld, mine, theirs := 0.0, 0.0, 0.0
	for i, id := range base.IDs {
		lb, lm := float64(base.Logs[i]), float64(logits[id])-norm
		pb := math.Exp(lb)
		kld += pb * (lb - lm)
		theirs += pb
		mine += math.Exp(lm)
	}
	if rest := 1 - theirs; rest > 1e-7 && len(base.IDs) < len(logits) { // below that it is rounding of the sum
		kld += rest * math.Log(rest/max(1-mine, 1e-12))
	}
	q.compared(max(kld, 0), logProb, float64(base.LogProb), largest(logits) == int(base.IDs[0]))
}

// count counts a position by the log probability of the text's token.
func (q *Tally) count(logProb float64) {
	b := &q.blocks[len(q.blocks)-1]
	b.n++
	q.Tokens++
	b.nll -= logProb
}

// compared counts a position that was compared with the base's: its divergence, both log probabilities of the text's
// token, and whether the most probable token is the same.
func (q *Tally) compared(kld, mine, theirs float64, same bool) {
	b := &q.blocks[len(q.blocks)-1]
	b.kld += kld
	q.klds = append(q.klds, kld)
	d := math.Exp(mine) - math.Exp(theirs)
	b.square += d * d
	if same {
		b.top++
	}
}

// largest is the index of the largest logit, the first of equal ones.
func largest(logits []float32) int {
	best := 0
	for i, x := range logits {
		if x > logits[best] {
			best = i
		}
	}
	return best
}

// A Mean is a mean with its interval of 95 %; Lo and Hi are equal to it where fewer than two blocks were seen.
type Mean struct {
	Value float64 `json:"value"`
	Lo    float64 `json:"lo"`
	Hi    float64 `json:"hi"`
}

// mean is the mean of a sum over all positions, with the interval of a ratio over blocks (Cochran 1977, 6.3), by
// Student's distribution: few blocks say little about their spread.
func (q *Tally) mean(of func(b *blockSums) float64) Mean {
	sum, n := 0.0, 0.0
	for i := range q.blocks {
		sum, n = sum+of(&q.blocks[i]), n+float64(q.blocks[i].n)
	}
	m := Mean{sum / n, sum / n, sum / n}
	if k := float64(len(q.blocks)); k >= 2 {
		ss := 0.0
		for i := range q.blocks {
			d := of(&q.blocks[i]) - m.Value*float64(q.blocks[i].n)
			ss += d * d
		}
		half := student95(len(q.blocks)-1) * math.Sqrt(ss*k/(k-1)) / n
		m.Lo, m.Hi = m.Value-half, m.Value+half
	}
	return m
}

// student is the quantile 0.975 of Student's distribution for 1 to 30 degrees of freedom.
var student = [...]float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
	2.145, 2.131, 2.120, 2.110,
	2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042}

// student95 is that quantile for any number of degrees of freedom from 1; above 30 by the first term of its expansion
// about the normal distribution (Abramowitz and Stegun 26.7.5), right to 0.003.
func student95(free int) float64 {
	if free <= len(student) {
		return student[free-1]
	}
	const z = normal95
	return z + (z*z*z+z)/(4*float64(free))
}

// through maps a mean with its interval.
func (m Mean) through(f func(float64) float64) Mean { return Mean{f(m.Value), f(m.Lo), f(m.Hi)} }

// Perplexity is exp of the mean negative log probability of the text's tokens.
func (q *Tally) Perplexity() Mean {
	return q.mean(func(b *blockSums) float64 { return b.nll }).through(math.Exp)
}

// KLD is the mean KL divergence to the base in nats, Agreement the share of positions with the same most probable
// token, RMSProb the root mean square of the difference of the probabilities of the text's tokens. ok is false
// without a base.
func (q *Tally) KLD() (m Mean, ok bool) {
	return q.mean(func(b *blockSums) float64 { return b.kld }), q.hasBase
}

// Spread is how the KL divergence is spread over positions: quantiles by nearest rank.
type Spread struct {
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	P999   float64 `json:"p99_9"`
	Max    float64 `json:"max"`
}

// Spread is that of the positions so far; ok is false without a base.
func (q *Tally) Spread() (s Spread, ok bool) {
	n := len(q.klds)
	if n == 0 {
		return s, false
	}
	sorted := slices.Sorted(slices.Values(q.klds))
	at := func(p float64) float64 { return sorted[max(0, int(math.Ceil(p*float64(n)))-1)] }
	return Spread{at(0.5), at(0.99), at(0.999), sorted[n-1]}, true
}

func (q *Tally) Agreement() (m Mean, ok bool) {
	return q.mean(func(b *blockSums) float64 { return b.top }), q.hasBase
}

func (q *Tally) RMSProb() (m Mean, ok bool) {
	square := q.mean(func(b *blockSums) float64 { return b.square })
	return square.through(func(x float64) float64 { return math.Sqrt(max(0, x)) }), q.hasBase
}

// BaseHead is the head of a base file.
type BaseHead struct {
	Schema    string `json:"schema"`
	Model     string `json:"model"`
	ModelHash string `json:"model_hash"`
	Text      string `json:"text_ids_sha256"` // of the ids as little-endian 32-bit numbers
	Block     int    `json:"block"`
	Vocab     int    `json:"vocab"`
	Top       int    `json:"top"`
	Positions int    `json:"positions"`
}

const (
	baseMagic   = "ckbase1\n"
	baseSchema  = "ck.bench.base/1"
	maxBaseHead = 1 << 16
)

// WriteBaseHead begins a base file: 8 bytes of magic, the length of the head (32 bits), the head as JSON, then the
// positions: token (int32), its log probability (float32), Top ids and Top log probabilities, all little-endian.
func WriteBaseHead(w io.Writer, h BaseHead) error {
	h.Schema = baseSchema
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	out := binary.LittleEndian.AppendUint32([]byte(baseMagic), uint32(len(b)))
	_, err = w.Write(append(out, b...))
	return err
}

// WritePosition appends a position; it must hold as many tokens as the head says.
func WritePosition(w io.Writer, p Position) error {
	out := binary.LittleEndian.AppendUint32(nil, uint32(p.Token))
	out = binary.LittleEndian.AppendUint32(out, math.Float32bits(p.LogProb))
	for _, id := range p.IDs {
		out = binary.LittleEndian.AppendUint32(out, uint32(id))
	}
	for _, l := range p.Logs {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(l))
	}
	_, err := w.Write(out)
	return err
}

// A BaseReader reads a base file.
type BaseReader struct {
	Head BaseHead
	r    *bufio.Reader
	buf  []byte
	pos  Position
	n    int
}

// NewBaseReader reads the head. Errors say what is wrong with the file.
func NewBaseReader(r io.Reader) (*BaseReader, error) {
	b := &BaseReader{r: bufio.NewReaderSize(r, 1<<16)}
	head := make([]byte, len(baseMagic)+4)
	if _, err := io.ReadFull(b.r, head); err != nil || string(head[:len(baseMagic)]) != baseMagic {
		return nil, errors.New("is no base of ckbench quality")
	}
	n := binary.LittleEndian.Uint32(head[len(baseMagic):])
	if n > maxBaseHead {
		return nil, fmt.Errorf("the head has %d bytes, at most %d are allowed", n, maxBaseHead)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(b.r, text); err != nil {
		return nil, errors.New("ends within the head")
	}
	if err := json.Unmarshal(text, &b.Head); err != nil {
		return nil, fmt.Errorf("the head is damaged: %w", err)
	}
	h := &b.Head
	if h.Schema != baseSchema || h.Top < 1 || h.Top > 4096 || h.Vocab < h.Top || h.Vocab > 1<<24 || h.Block < 2 ||
		h.Positions < 0 {
		return nil, fmt.Errorf("schema %q with %d of %d tokens and blocks of %d cannot be used", h.Schema, h.Top,
			h.Vocab, h.Block)
	}
	b.buf = make([]byte, 8+8*h.Top)
	b.pos.IDs, b.pos.Logs = make([]int32, h.Top), make([]float32, h.Top)
	return b, nil
}

// isLogProb reports whether x can be a log probability: finite, and 0 at most but for rounding.
func isLogProb(x float32) bool { return x >= -math.MaxFloat32 && x <= 1e-3 }

// Next is the next position, valid until the next call.
func (b *BaseReader) Next() (*Position, error) {
	if _, err := io.ReadFull(b.r, b.buf); err != nil {
		return nil, fmt.Errorf("ends at position %d of %d", b.n, b.Head.Positions)
	}
	le := binary.LittleEndian
	b.pos.Token, b.pos.LogProb = int32(le.Uint32(b.buf)), math.Float32frombits(le.Uint32(b.buf[4:]))
	if b.pos.Token < 0 || int(b.pos.Token) >= b.Head.Vocab || !isLogProb(b.pos.LogProb) {
		return nil, fmt.Errorf("position %d: token %d with log probability %g cannot be", b.n, b.pos.Token,
			b.pos.LogProb)
	}
	for i := range b.pos.IDs {
		id := le.Uint32(b.buf[8+4*i:])
		if id >= uint32(b.Head.Vocab) {
			return nil, fmt.Errorf("position %d: token %d is beyond the vocabulary of %d", b.n, id, b.Head.Vocab)
		}
		b.pos.IDs[i] = int32(id)
		b.pos.Logs[i] = math.Float32frombits(le.Uint32(b.buf[8+4*(len(b.pos.IDs)+i):]))
		if !isLogProb(b.pos.Logs[i]) {
			return nil, fmt.Errorf("position %d: token %d with log probability %g cannot be", b.n, id, b.pos.Logs[i])
		}
	}
	b.n++
	return &b.pos, nil
}
