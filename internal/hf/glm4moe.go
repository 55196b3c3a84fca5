package hf

import "fmt"

// glm4moe reads the keys of Glm4MoeForCausalLM: experts behind the first layers, a shared one among them, scores by a sigmoid.
func glm4moe(c *config) {
	c.decoder("silu")
	c.mixture("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size")
	var own struct {
		Norm   *bool    `json:"norm_topk_prob"`
		Scale  *float64 `json:"routed_scaling_factor"`
		Groups *float64 `json:"n_group"`
		Open   *float64 `json:"topk_group"`
		Shared *float64 `json:"n_shared_experts"`
		Dense  *float64 `json:"first_k_dense_replace"`
		Next   *float64 `json:"num_nextn_predict_layers"`
	}
	c.own(&own)
	for _, k := range []struct {
		key, to string
		v       *float64
	}{{"n_group", "expert_group_count", own.Groups}, {"topk_group", "expert_group_used_count", own.Open}, {"n_shared_experts", "expert_shared_count", own.Shared},
		{"first_k_dense_replace", "leading_dense_block_count", own.Dense}} {
		if k.v != nil {
			c.set(k.to, uint32(c.number(k.key, k.v)))
		}
	}
	c.set("expert_gating_func", uint32(2))
	c.set("expert_weights_norm", own.Norm == nil || *own.Norm)
	if own.Scale != nil {
		c.set("expert_weights_scale", float32(c.number("routed_scaling_factor", own.Scale)))
	}
	if own.Next != nil {
		c.set("nextn_predict_layers", uint32(0)) // of those that are left
		if c.nextn = int(c.number("num_nextn_predict_layers", own.Next)); c.nextn > 0 {
			c.notes = append(c.notes, fmt.Sprintf("config.json: num_nextn_predict_layers: %d layers that predict tokens further on are left out", c.nextn))
		}
	}
}
