package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"ck/internal/cli"
	"ck/internal/entropy"
	"ck/internal/plaintext"
)

const entropyLong = `Says how many bits the weights carry: for each tensor the stored bits of a weight and the entropy of its parts (exponents, mantissas, codes, scales), of order 0. Their ratio is what a lossless coder that knows the frequencies could save. -v shows the parts.`

func (p *program) entropyCommand() {
	p.app.NewCommand("entropy [flags] MODEL", "how many bits the weights carry", entropyLong, p.runEntropy)
}

// entropyRow is a tensor in JSON, with its parts.
type entropyRow struct {
	Name    string         `json:"name"`
	Type    string         `json:"type"`
	Weights int64          `json:"weights"`
	Bits    float64        `json:"bits_per_weight"`
	Entropy float64        `json:"entropy_per_weight"`
	Parts   []entropy.Part `json:"parts"`
}

// runEntropy is ckquant entropy.
func (p *program) runEntropy(c *cobra.Command, args []string) error {
	path, ok := p.modelWord(args)
	if !ok {
		return cli.Usage("entropy: takes MODEL; see ckquant entropy --help")
	}
	m, err := p.open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	workers, err := p.workers()
	if err != nil {
		return err
	}
	total := int64(0)
	for _, t := range m.Tensors {
		total += int64(t.Rows()) * int64(t.Cols())
	}
	bar := p.app.NewProgress("counting", "M weights", max(1, total/1e6))
	defer bar.Done()
	list, err := entropy.Of(c.Context(), m, workers, func(n int64) { bar.Reach(float64(n) / 1e6) })
	bar.Done()
	if err != nil {
		return err
	}
	var rows []entropyRow
	all := entropyRow{Name: "all"}
	for i := range list {
		t := &list[i]
		rows = append(rows, entropyRow{t.Name, t.Type.String(), t.Weights, t.Bits(), t.Entropy(), t.Parts})
		all.Weights += t.Weights
		all.Bits += t.Bits() * float64(t.Weights)
		all.Entropy += t.Entropy() * float64(t.Weights)
	}
	all.Bits, all.Entropy = all.Bits/float64(max(1, all.Weights)), all.Entropy/float64(max(1, all.Weights))
	return p.printEntropy(rows, all)
}

func (p *program) printEntropy(rows []entropyRow, all entropyRow) error {
	if p.app.Common.JSONL {
		return cli.PrintLines(p.app, "ck.quant.entropy.tensor/1", rows)
	}
	if p.app.Common.JSON {
		return p.app.PrintJSON(struct {
			Schema  string       `json:"schema"`
			Weights int64        `json:"weights"`
			Bits    float64      `json:"bits_per_weight"`
			Entropy float64      `json:"entropy_per_weight"`
			Tensors []entropyRow `json:"tensors"`
		}{"ck.quant.entropy/1", all.Weights, all.Bits, all.Entropy, rows})
	}
	t := plaintext.Table{Head: []string{"tensor", "type", "bits/weight", "entropy", "share"},
		Right: []bool{false, false, true, true, true}}
	if p.app.Common.Verbose {
		t.Head, t.Right = append(t.Head, "entropy of the parts"), append(t.Right, false)
	}
	for _, r := range append(rows, all) {
		parts := ""
		for i, q := range r.Parts {
			if i > 0 {
				parts += ", "
			}
			parts += fmt.Sprintf("%s %.2f", q.Name, q.Entropy)
		}
		row := []string{r.Name, r.Type, fmt.Sprintf("%.2f", r.Bits), fmt.Sprintf("%.2f", r.Entropy),
			fmt.Sprintf("%.0f %%", 100*r.Entropy/max(r.Bits, 1e-9)), parts}
		t.Rows = append(t.Rows, row[:len(t.Head)])
	}
	return cli.OutError(t.Write(p.app.Out, p.app.Common.Plain))
}
