// Package advice says what a model takes and does on a machine, and which settings to take there.
//
// Memory, speed and bounds are those of package cost; here they become one value per model and machine, with the lines to type. The values
// are the document of JSON; package view has them as text. Nothing is printed here.
package advice

import (
	"time"
)

// Schema is that of a Document.
const Schema = "ck.topo.plan/1"

// Ask is what is asked of a model on a machine.
type Ask struct {
	Prompt  int    // tokens
	Context int    // positions of a sequence; 0: see Use
	Rows    int    // sequences that generate in one walk
	UBatch  int    // rows of a prompt's walk
	KV      string // type of the cache: f32, f16, bf16, q8_0, q4_0
	Threads int    // 0: as many as the machine has cores
	CPU     string // the tier of the kernels at most; "": the best
	Ranks   int    // machines that add up over a network
	Rank    int    // of adapters for fine-tuning

	ClaimPrefill time.Duration // the prompt in so short a time; 0: no claim
	ClaimDecode  float64       // tokens a second of one sequence; 0: no claim
}

// Document is all plans; the tags are the names in JSON. Times are seconds, sizes bytes, rates per second.
type Document struct {
	Schema string `json:"schema"`
	Plans  []Plan `json:"plans"` // machines, and within each the types

}

// Plan is one model on one machine.
type Plan struct {
	Model     ModelFacts       `json:"model"`
	Machine   MachineFacts     `json:"machine"`
	Use       UseFacts         `json:"use"`
	Memory    MemoryFacts      `json:"memory"`
	Placement []PlacementFacts `json:"placement"`
	Prefill   *PhaseFacts      `json:"prefill"` // null: the roofs are not known
	Decode    *PhaseFacts      `json:"decode"`
	NoSpeed   string           `json:"no_speed,omitempty"`
	FirstUse  *FirstFacts      `json:"first_use"`
	Claims    []ClaimFacts     `json:"claims"`
	Networks  []NetworkFacts   `json:"networks"`
	Training  TrainingFacts    `json:"training"`
	Commands  []CommandFacts   `json:"commands"`
}

// ModelFacts is the model.
type ModelFacts struct {
	Name    string  `json:"name"`
	Type    string  `json:"type"`
	Params  float64 `json:"params"`
	Layers  int     `json:"layers"`
	Hidden  int     `json:"hidden"`
	Heads   int     `json:"heads"`
	KVHeads int     `json:"kv_heads"`
	Vocab   int     `json:"vocab"`
	Context int     `json:"context"`
}

// MachineFacts is the machine: bytes and operations a second.
type MachineFacts struct {
	Name      string             `json:"name"`
	Sockets   int                `json:"sockets"`
	Nodes     int                `json:"nodes"`
	Cores     int                `json:"cores"`
	ISA       string             `json:"isa"`
	Tier      string             `json:"tier"`       // of the kernels
	Read      float64            `json:"read_bytes"` // 0: not known
	Why       string             `json:"read_from"`
	Theory    float64            `json:"theory_bytes"`
	PeakOps   map[string]float64 `json:"peak_ops"`  // of the kernels' tier, all cores
	BoundOps  map[string]float64 `json:"bound_ops"` // of the best tier
	MemoryCap int64              `json:"memory"`    // for a model; 0: not told
}

// UseFacts is how the model is used.
type UseFacts struct {
	Prompt  int    `json:"prompt"`
	Context int    `json:"context"`
	Rows    int    `json:"rows"`
	UBatch  int    `json:"ubatch"`
	KV      string `json:"kv"`
	Threads int    `json:"threads"`
}

// PartFacts is a class of weights.
type PartFacts struct {
	Class  string  `json:"class"`
	Params float64 `json:"params"`
	Bytes  int64   `json:"bytes"`
	Panels int64   `json:"panels"`
}

// LayoutFacts is a way in which heads share keys and values.
type LayoutFacts struct {
	Layout   string           `json:"layout"`
	KVHeads  int              `json:"kv_heads"`
	Position map[string]int64 `json:"bytes_per_position"` // by cache type
}

// MemoryFacts is what the model takes.
type MemoryFacts struct {
	Parts       []PartFacts   `json:"weights"`
	File        int64         `json:"file"`
	Panels      int64         `json:"panels"`
	KVPosition  int64         `json:"kv_per_position"`
	KV          int64         `json:"kv"`
	Layouts     []LayoutFacts `json:"kv_layouts"`
	Activations int64         `json:"activations"`
	Need        int64         `json:"need"`      // panels, cache, activations
	NeedFile    int64         `json:"need_file"` // without panels: file, cache, activations
	Budget      int64         `json:"budget"`    // least free memory with which ckrun makes all panels
	BudgetFile  int64         `json:"budget_file"`
	Fits        *bool         `json:"fits"` // panels; null: the machine's memory is not told
	FileFits    *bool         `json:"file_fits"`
}

// PlacementFacts is the part of a memory node.
type PlacementFacts struct {
	Node    int   `json:"node"`
	Cores   int   `json:"cores"`
	Weights int64 `json:"weights"`
	KVHeads int   `json:"kv_heads"` // 0: fewer heads than nodes, split by position
	KV      int64 `json:"kv"`
	Memory  int64 `json:"memory"` // 0: not told
}

// PhaseFacts is the speed of a phase.
type PhaseFacts struct {
	Low         float64 `json:"low"` // tokens a second
	Expected    float64 `json:"expected"`
	High        float64 `json:"high"`
	Bound       float64 `json:"bound"`
	Seconds     float64 `json:"seconds"` // of the prompt, of one walk of decode
	Matmul      float64 `json:"matmul"`
	Attention   float64 `json:"attention"`
	Elementwise float64 `json:"elementwise"`
	Meetings    float64 `json:"barriers"`
	Barriers    int     `json:"barrier_count"`
	Reading     float64 `json:"waiting_for_memory"` // seconds, of those of matmuls and attention
	Bytes       float64 `json:"bytes"`
	Ops         float64 `json:"ops"`
}

// FirstFacts is what the first use of a file takes longer, in seconds.
type FirstFacts struct {
	First float64 `json:"first_walk"` // longer
	Stay  float64 `json:"packing"`    // over the next walks
}

// ClaimFacts is a claim beside what the machine has.
type ClaimFacts struct {
	Claim    string  `json:"claim"`
	Need     float64 `json:"need"`
	Has      float64 `json:"has"`
	Unit     string  `json:"unit"`
	Kind     string  `json:"kind"`
	Times    float64 `json:"times"` // need / has
	Possible bool    `json:"possible"`
	Expected string  `json:"expected"`
}

// NetworkFacts is how long sums over machines take.
type NetworkFacts struct {
	Network   string  `json:"network"`
	Ranks     int     `json:"ranks"`
	Decode    float64 `json:"decode"` // a walk
	Prompt    float64 `json:"prompt"`
	Gradients float64 `json:"gradients"` // a step of training
}

// TrainingFacts is what fine-tuning takes.
type TrainingFacts struct {
	Tokens      int     `json:"tokens"` // of a sequence
	Full        int64   `json:"full"`
	LoRA        int64   `json:"lora"`
	LoRARank    int     `json:"lora_rank"`
	LoRAParams  float64 `json:"lora_params"`
	Activations int64   `json:"activations"`
	Ranks       int     `json:"ranks"`
	Sharded     int64   `json:"sharded"`
	FullOps     float64 `json:"full_ops_per_token"`
	LoRAOps     float64 `json:"lora_ops_per_token"`
	FullRate    float64 `json:"full_tokens_per_s_at_peak"` // of the kernels' tier; 0: the peak is not known
	LoRARate    float64 `json:"lora_tokens_per_s_at_peak"`
	FullBound   float64 `json:"full_tokens_per_s_bound"` // at the peak of the best tier
	LoRABound   float64 `json:"lora_tokens_per_s_bound"`
	FullFits    *bool   `json:"full_fits"`
	LoRAFits    *bool   `json:"lora_fits"`
	Machines    int     `json:"machines"` // of this memory for full training; 0: no number, or not told
}

// CommandFacts is a line to paste.
type CommandFacts struct {
	For  string `json:"for"`
	Line string `json:"line"`
	All  bool   `json:"-"` // for a shell, with all threads
}

// FitsNowhere reports whether the machine's memory is too small for the model, even without panels.
func (p *Plan) FitsNowhere() bool { return p.Memory.FileFits != nil && !*p.Memory.FileFits }
