package train

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"sync/atomic"
	"unsafe"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// A checkpoint is a GGUF file: values under their tensors' names, with the rows that they are where they are
// a part, moments with "m:" and "v:" before these, all in float32; keys say how far training came,
// with which options and data, and have a checksum of the tensors. Training that goes on from it makes the bits that it would have made without a break.

// State is what a checkpoint keeps beside values and moments.
type State struct {
	Step    int               `json:"step"`    // steps that were made
	Taken   int               `json:"taken"`   // batches that were taken: more, where bad steps were left out
	Options map[string]string `json:"options"` // what must be the same to go on, by flag
	Data    string            `json:"data"`    // hash of the data
}

// Keys of checkpoints.
const (
	keyState = "ck.train.state"
	keySum   = "ck.train.crc32c" // of the tensors' bytes, in their order
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// tensors lists what a checkpoint has, with names.
func (t *Trainer) tensors() (names []string, all [][]float32, shapes [][]int) {
	add := func(name string, v []float32, shape []int) {
		if v != nil {
			names, all, shapes = append(names, name), append(all, v), append(shapes, shape)
		}
	}
	for i, p := range t.Net.Params {
		shape := []int{p.Cols, p.Rows}
		if p.Rows == 1 {
			shape = shape[:1]
		}
		add(p.Label(), p.Value, shape)
		add("m:"+p.Label(), t.Moments[i].M, shape)
		add("v:"+p.Label(), t.Moments[i].V, shape)
	}
	return names, all, shapes
}

func floatBytes(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

// Save writes a checkpoint.
func (t *Trainer) Save(w io.Writer, s State) error {
	s.Step = t.Done
	state, err := json.Marshal(s)
	if err != nil {
		return err
	}
	names, all, shapes := t.tensors()
	sum := uint32(0)
	var infos []gguf.TensorInfo
	for i, v := range all {
		sum = crc32.Update(sum, castagnoli, floatBytes(v))
		infos = append(infos, gguf.TensorInfo{Name: names[i], Type: quant.F32, Shape: shapes[i]})
	}
	kv := &gguf.Metadata{}
	kv.Set("general.architecture", "ck-checkpoint")
	kv.Set(keyState, string(state))
	kv.Set(keySum, sum)
	out, err := gguf.NewWriter(w, kv, infos)
	if err != nil {
		return err
	}
	for _, v := range all {
		if _, err := out.Write(floatBytes(v)); err != nil {
			return err
		}
	}
	return out.Close()
}

// A MismatchError says why a checkpoint does not fit.
type MismatchError struct{ What, Has, Want string }

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s: the checkpoint has %s, this run %s; go on with what it has, or begin in another folder", e.What, e.Has, e.Want)
}

// ReadState is the state of a checkpoint.
func ReadState(m *gguf.Model) (State, error) {
	var s State
	text, ok, err := m.KV.String(keyState)
	if err != nil || !ok {
		return s, fmt.Errorf("%s: is no checkpoint: it has no key %s", m.Path, keyState)
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil || s.Step < 0 {
		return s, fmt.Errorf("%s: key %s: %q", m.Path, keyState, text)
	}
	return s, nil
}

// Restore goes on from a checkpoint, which must be of the same options and data.
func (t *Trainer) Restore(m *gguf.Model, want State) error {
	s, err := ReadState(m)
	if err != nil {
		return err
	}
	for name, value := range want.Options {
		if s.Options[name] != value {
			return &MismatchError{"--" + name, fmt.Sprintf("%q", s.Options[name]), fmt.Sprintf("%q", value)}
		}
	}
	if s.Data != want.Data {
		return &MismatchError{"the data", "another hash", "other files or contents"}
	}
	names, all, _ := t.tensors()
	if len(m.Tensors) != len(names) {
		return &MismatchError{"the model", fmt.Sprintf("%d tensors", len(m.Tensors)), fmt.Sprintf("%d", len(names))}
	}
	return m.Guard(func() error {
		sum := uint32(0)
		for i, name := range names {
			x := m.Tensor(name)
			if x == nil || x.Type != quant.F32 || len(x.Data) != 4*len(all[i]) {
				return &MismatchError{name, "no such tensor, or of another size", fmt.Sprintf("%d elements", len(all[i]))}
			}
			sum = crc32.Update(sum, castagnoli, x.Data)
		}
		if want, ok, err := m.KV.Int(keySum); err != nil || !ok || uint32(want) != sum {
			return fmt.Errorf("%s: is damaged: the checksum of its tensors is another; go on from an older checkpoint", m.Path)
		}
		for i, name := range names {
			data := m.Tensor(name).Data
			for j := range all[i] {
				all[i][j] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*j:]))
			}
		}
		t.Done = s.Step
		return t.renew(&atomic.Bool{})
	})
}
