package synth

import (
	"fmt"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// lister lists the tensors of a shape.
type lister struct {
	Shape
	out []gguf.TensorInfo
}

func (s *lister) add(t quant.Type, name string, shape ...int) {
	s.out = append(s.out, gguf.TensorInfo{Name: name, Type: t, Shape: shape})
}

// matrix adds NAME.weight of so many rows.
func (s *lister) matrix(name string, rows, cols int) { s.add(quant.BF16, name+".weight", cols, rows) }

// norm adds NAME.weight, a vector.
func (s *lister) norm(name string, n int) { s.add(quant.F32, name+".weight", n) }

// bias adds NAME.bias, where gpt-oss has one.
func (s *lister) bias(name string, shape ...int) {
	if s.Arch == "gpt-oss" {
		s.add(quant.F32, name+".bias", shape...)
	}
}

// tensors lists the model's tensors, matrices in BF16.
func (s Shape) tensors() []gguf.TensorInfo {
	l := &lister{Shape: s}
	l.matrix("token_embd", s.Vocab, s.Hidden)
	if v := s.Vector(ropeFreqs); v != nil {
		l.add(quant.F32, ropeFreqs, len(v))
	}
	gemma := s.Arch == "gemma3" || s.Arch == "gemma4"
	for n := range s.Layers {
		b := fmt.Sprintf("blk.%d.", n)
		l.norm(b+"attn_norm", s.Hidden)
		l.attention(b, n)
		switch {
		case gemma:
			l.norm(b+"post_attention_norm", s.Hidden)
			l.norm(b+"ffn_norm", s.Hidden)
			l.norm(b+"post_ffw_norm", s.Hidden)
		case s.Arch == "gpt-oss":
			l.norm(b+"post_attention_norm", s.Hidden) // which is the feed-forward's
		default:
			l.norm(b+"ffn_norm", s.Hidden)
		}
		l.feedForward(b)
	}
	l.norm("output_norm", s.Hidden)
	if !s.Tied {
		l.matrix("output", s.Vocab, s.Hidden)
	}
	return l.out
}

// attention lists what a layer's attention has.
func (s *lister) attention(b string, layer int) {
	dim, kv := s.headDim(layer), s.kvHeads(layer)
	names, rows := []string{"attn_q", "attn_k", "attn_v"}, []int{s.Heads * dim, kv * dim, kv * dim}
	switch {
	case s.Arch == "phi3":
		names, rows = []string{"attn_qkv"}, []int{(s.Heads + 2*kv) * dim}
	case s.GlobalHeadDim > 0 && !s.slides(layer):
		names = names[:2]
	}
	for i, name := range names {
		s.matrix(b+name, rows[i], s.Hidden)
		if s.QKVBias {
			s.add(quant.F32, b+name+".bias", rows[i])
		}
		s.bias(b+name, rows[i])
	}
	if s.QKNorm {
		s.norm(b+"attn_q_norm", dim)
		s.norm(b+"attn_k_norm", dim)
	}
	if s.Arch == "gpt-oss" {
		s.norm(b+"attn_sinks", s.Heads)
	}
	s.matrix(b+"attn_output", s.Hidden, s.Heads*dim)
	s.bias(b+"attn_output", s.Hidden)
}

// feedForward lists what a layer's feed-forward has, or its experts; gemma 4 has both.
func (s *lister) feedForward(b string) {
	switch {
	case s.Experts > 0 && s.Arch != "gemma4":
	case s.Arch == "phi3":
		s.matrix(b+"ffn_up", 2*s.FFN, s.Hidden)
		s.matrix(b+"ffn_down", s.Hidden, s.FFN)
	default:
		s.matrix(b+"ffn_gate", s.FFN, s.Hidden)
		s.matrix(b+"ffn_up", s.FFN, s.Hidden)
		s.matrix(b+"ffn_down", s.Hidden, s.FFN)
	}
	if s.Arch == "gemma4" {
		s.norm(b+"layer_output_scale", 1)
	}
	if s.Experts == 0 {
		return
	}
	s.add(quant.F32, b+"ffn_gate_inp.weight", s.Hidden, s.Experts)
	s.bias(b+"ffn_gate_inp", s.Experts)
	type part struct {
		name       string
		rows, cols int
	}
	parts := []part{{"ffn_gate_exps", s.ExpertFFN, s.Hidden}, {"ffn_up_exps", s.ExpertFFN, s.Hidden}, {"ffn_down_exps", s.Hidden, s.ExpertFFN}}
	if s.Arch == "gemma4" {
		parts = []part{{"ffn_gate_up_exps", 2 * s.ExpertFFN, s.Hidden}, parts[2]}
		for _, name := range []string{"post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2"} {
			s.norm(b+name, s.Hidden)
		}
		s.add(quant.F32, b+"ffn_gate_inp.scale", s.Hidden)
		s.add(quant.F32, b+"ffn_down_exps.scale", s.Experts)
	}
	for _, p := range parts {
		s.add(quant.BF16, b+p.name+".weight", p.cols, p.rows, s.Experts)
		s.bias(b+p.name, p.rows, s.Experts)
	}
}
