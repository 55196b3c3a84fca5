package train

import (
	"fmt"
	"hash/crc32"
	"slices"
	"sync/atomic"

	"ck/internal/team"
)

// A ReplicaError says that replicas have different panels of a tensor: memory, or what lies between, changed a bit.
type ReplicaError struct {
	Step    int // counted from 1, before its update
	Replica int // that differs from the first one
	Tensor  string
}

func (e *ReplicaError) Error() string {
	return fmt.Sprintf("step %d: replica %d has other bits of %s than replica 0; what was trained since the last comparison may be wrong: test the memory, "+
		"go on from an earlier checkpoint", e.Step, e.Replica, e.Tensor)
}

// hashed is how many bytes of panels have one checksum.
const hashed = 16 << 10

// checksums are those of all panels: CRC-32C of pieces, by matrix.
func (n *Net) checksums() ([][]uint32, error) {
	all := make([][]uint32, len(n.panels))
	for i, p := range n.panels {
		all[i] = make([]uint32, (len(p.mem)+hashed-1)/hashed)
	}
	size := n.opt.Team.Size()
	return all, n.opt.Team.Run(func(w int) {
		unit := 0
		for i, p := range n.panels {
			for k := range all[i] {
				if unit%size == w {
					team.Safepoint()
					all[i][k] = crc32.Checksum(p.mem[k*hashed:min((k+1)*hashed, len(p.mem))], castagnoli)
				}
				unit++
			}
		}
	})
}

// same compares the panels of all replicas, which were those of the walks of a step.
func (t *Trainer) same(stop *atomic.Bool) error {
	sums := make([][][]uint32, len(t.nets))
	if err := t.all(stop, func(r int) (err error) {
		sums[r], err = t.nets[r].checksums()
		return err
	}); err != nil {
		return err
	}
	for i, p := range t.nets[0].panels {
		for r := range sums {
			if !slices.Equal(sums[r][i], sums[0][i]) {
				return &ReplicaError{t.Done + 1, r, p.of.Label()}
			}
		}
	}
	return nil
}
