package hf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ck/internal/gguf"
)

// ofExpert puts E for the number of the expert in a tensor's key, and returns it; -1 where there is none.
func ofExpert(key string) (string, int) {
	const before = ".experts."
	head, rest, ok := strings.Cut(key, before)
	number, part, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 0 || strconv.Itoa(n) != number {
		return key, -1
	}
	return head + before + "E." + part, n
}

// stack keeps the matrix of an expert until the others are there.
func (c *config) stack(stacks map[string][]*gguf.Tensor, t *gguf.Tensor, expert int) error {
	list := stacks[t.Name]
	if list == nil {
		list = make([]*gguf.Tensor, c.experts)
		stacks[t.Name] = list
	}
	if list[expert] != nil {
		return fmt.Errorf("there are two of expert %d", expert)
	}
	if len(t.Shape) != 2 {
		return fmt.Errorf("has %d dimensions, expected the matrix of an expert", len(t.Shape))
	}
	list[expert] = t
	return nil
}

// addStacks adds the tensors that GGUF has of the matrices of experts. They stay where they lie.
func addStacks(m *gguf.Model, stacks map[string][]*gguf.Tensor) error {
	names := make([]string, 0, len(stacks))
	for n := range stacks {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, name := range names {
		list := stacks[name]
		first := list[0]
		for e, t := range list {
			switch {
			case t == nil:
				return fmt.Errorf("tensor %s: expert %d of %d is missing; the files are not whole: download them again", name, e, len(list))
			case t.Type != first.Type || !slices.Equal(t.Shape, first.Shape) || (t.Make == nil) != (first.Make == nil):
				return fmt.Errorf("tensor %s: expert %d is %v of %v, expert 0 %v of %v", name, e, t.Shape, t.Type, first.Shape, first.Type)
			}
		}
		t := &gguf.Tensor{Name: name, Type: first.Type, Shape: append(slices.Clone(first.Shape), len(list)), File: first.File, Offset: first.Offset}
		if first.Make != nil {
			each := first.Rows()
			t.Make = func(dst []byte, r int) { list[r/each].Make(dst, r%each) }
		} else {
			for _, x := range list {
				t.Parts = append(t.Parts, x.Data)
			}
		}
		if err := m.Add(t); err != nil {
			return err
		}
	}
	return nil
}

// mixture reads the keys of experts: their number, how many a row uses, and their width; the names are the class's.
func (c *config) mixture(count, used, width string) {
	var own map[string]any
	c.own(&own)
	number := func(key string) int {
		v, ok := own[key].(float64)
		if !ok {
			c.fail("%s: is missing, or no number", key)
			return 1
		}
		return int(c.number(key, &v))
	}
	c.experts = number(count)
	c.set("expert_count", uint32(c.experts))
	c.set("expert_used_count", uint32(number(used)))
	if width != "" {
		c.set("expert_feed_forward_length", uint32(number(width)))
	}
}

// mixtral reads the keys of MixtralForCausalLM.
func mixtral(c *config) {
	mistral(c)
	c.mixture("num_local_experts", "num_experts_per_tok", "")
}

// qwen3moe reads the keys of Qwen3MoeForCausalLM. Weights of a row's experts add up to 1 unless norm_topk_prob says otherwise, which transformers
// takes as no where it is missing.
func qwen3moe(c *config) {
	qwen(c)
	c.mixture("num_experts", "num_experts_per_tok", "moe_intermediate_size")
	var own struct {
		Norm  bool  `json:"norm_topk_prob"`
		Step  *int  `json:"decoder_sparse_step"`
		Dense []int `json:"mlp_only_layers"`
	}
	c.own(&own)
	c.set("expert_weights_norm", own.Norm)
	if own.Step != nil && *own.Step != 1 || len(own.Dense) > 0 {
		c.fail("decoder_sparse_step, mlp_only_layers: layers without experts are not supported for %s", c.name)
	}
}
