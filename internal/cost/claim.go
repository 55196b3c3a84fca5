package cost

import "ck/internal/plan"

// A Verdict compares what a projection needs with what a machine has at most, and with what is expected.
type Verdict struct {
	Need     float64 // operations or bytes a second
	Has      float64 // of all cores with their best instructions, or of all channels
	Times    float64 // Need / Has; above 1 no program can do it
	Possible bool
}

func verdict(need, has float64) Verdict {
	return Verdict{need, has, need / has, need <= has}
}

// PromptOps is 2 operations for each parameter and token: the usual count.
func (m *Model) PromptOps(tokens int) float64 { return opsForward * m.Params() * float64(tokens) }

// JudgePrefill compares a prompt in so many seconds with the peak of the arithmetic that the weights need.
func (m *Model) JudgePrefill(x Machine, kind string, tokens int, seconds float64) Verdict {
	return verdict(m.PromptOps(tokens)/seconds, x.Bound().Peak[kind])
}

// JudgeDecode compares tokens a second of one sequence with the theory of the memory channels: each token reads all weights and the cache.
func (m *Model) JudgeDecode(x Machine, r Run, rate float64) (Verdict, error) {
	r.Rows = 1
	t, err := m.LeastDecode(r, x.Bound())
	return verdict(t.Bytes*rate, x.Bound().Read), err
}

// Kind is the arithmetic of most operations of the model's matmuls.
func (m *Model) Kind() (string, error) {
	p, err := m.planOf(17, Limits{Workers: 1}, 17)
	if err != nil {
		return "", err
	}
	return p.Total(plan.Load{Rows: 17, Picks: 1}).Kind, nil
}
