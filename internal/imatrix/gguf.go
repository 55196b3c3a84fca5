package imatrix

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"ck/internal/gguf"
	"ck/internal/mapfile"
	"ck/internal/quant"
)

// Keys of the GGUF form (llama.cpp, common/imatrix-loader.h). Those that begin with ck are in matrices that are to be
// continued.
const (
	keyType     = "general.type"
	typeImatrix = "imatrix"
	keyDatasets = "imatrix.datasets"
	keyChunks   = "imatrix.chunk_count"
	keySize     = "imatrix.chunk_size"
	keyModel    = "ck.imatrix.model"
	keyText     = "ck.imatrix.text"
	keyAct      = "ck.imatrix.act"
	keyKV       = "ck.imatrix.kv"
)

// What stands behind a tensor's name: F32 sums and counts, which llama.cpp reads, and what it passes over: sums and
// covariances in F64.
const (
	endSums       = ".in_sum2"
	endCounts     = ".counts"
	endExact      = ".in_sum2_f64"
	endCovariance = ".in_cov"
)

// FileError says that a file is no importance matrix, or a damaged one.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string { return fmt.Sprintf("%s: %v", e.Path, e.Err) }
func (e *FileError) Unwrap() error { return e.Err }

// Open reads a file of either form. What is wrong with its content is a *FileError.
func Open(path string) (*Matrix, error) {
	f, err := mapfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var m *Matrix
	err = f.Guard(func() error {
		m, err = Read(path, f.Data)
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Read reads either form, which it recognises by its content; path names the file in errors, which are *FileError.
func Read(path string, data []byte) (*Matrix, error) {
	if !bytes.HasPrefix(data, []byte("GGUF")) {
		m, err := readDat(data)
		if err != nil {
			return nil, &FileError{path, err}
		}
		return m, nil
	}
	g, err := gguf.FromBytes(path, data)
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil {
			err = inner
		}
		return nil, &FileError{path, err}
	}
	m, err := fromGGUF(g)
	if err != nil {
		return nil, &FileError{path, err}
	}
	return m, nil
}

// fromGGUF takes the matrix out of an open file.
func fromGGUF(g *gguf.Model) (*Matrix, error) {
	m := &Matrix{}
	if err := m.keys(g.KV); err != nil {
		return nil, err
	}
	for _, t := range g.Tensors {
		if t.Stored != nil {
			return nil, fmt.Errorf("tensor %q: is compressed; make a plain file with ckquant convert", t.Name)
		}
		name, ok := strings.CutSuffix(t.Name, endSums)
		if !ok {
			continue
		}
		e, err := entryOf(g, name)
		if err != nil {
			return nil, err
		}
		m.Entries = append(m.Entries, e)
	}
	for _, t := range g.Tensors {
		for _, end := range []string{endCounts, endExact, endCovariance} {
			if name, ok := strings.CutSuffix(t.Name, end); ok && g.Tensor(name+endSums) == nil {
				return nil, fmt.Errorf("tensor %q: there is no %s beside it", t.Name, name+endSums)
			}
		}
	}
	if len(m.Entries) == 0 {
		return nil, errors.New("has no tensor whose name ends with " + endSums + ": this is no importance matrix")
	}
	m.sort()
	return m, nil
}

// keys reads the metadata. All keys of the form must be there, as llama-quantize wants them.
func (m *Matrix) keys(kv *gguf.Metadata) error {
	kind, ok, err := kv.String(keyType)
	if err != nil {
		return err
	}
	if ok && kind != typeImatrix {
		return fmt.Errorf("%s is %.40q, expected %q: this is no importance matrix", keyType, kind, typeImatrix)
	}
	if m.Datasets, ok, err = kv.Strings(keyDatasets); err != nil || !ok {
		return missing(keyDatasets, err)
	}
	for _, k := range []struct {
		key string
		to  *int
	}{{keyChunks, &m.Chunks}, {keySize, &m.ChunkSize}} {
		n, ok, err := kv.Int(k.key)
		if err != nil || !ok {
			return missing(k.key, err)
		}
		if n < 0 || n > math.MaxUint32 {
			return fmt.Errorf("%s is %d, expected a number of 32 bits", k.key, n)
		}
		*k.to = int(n)
	}
	if m.ChunkSize == 0 {
		return fmt.Errorf("%s is 0; a block has tokens", keySize)
	}
	for key, to := range map[string]*string{keyModel: &m.Model, keyText: &m.Text, keyAct: &m.Act, keyKV: &m.KV} {
		if *to, _, err = kv.String(key); err != nil {
			return err
		}
	}
	return nil
}

func missing(key string, err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("key %s is missing: this is no importance matrix, or a damaged one", key)
}

// maxCount bounds counts: beyond it float32, which files have them in, and what is computed with them mean nothing.
const maxCount = 1 << 53

// entryOf reads the entry of a tensor, whose sums are there.
func entryOf(g *gguf.Model, name string) (Entry, error) {
	e := Entry{Name: name}
	if name == "" {
		return e, fmt.Errorf("tensor %q: no name before the ending", endSums)
	}
	sums, counts := g.Tensor(name+endSums), g.Tensor(name+endCounts)
	if counts == nil {
		return e, fmt.Errorf("tensor %q: there is no %s beside it", sums.Name, name+endCounts)
	}
	for _, t := range []*gguf.Tensor{sums, counts} {
		if t.Type != quant.F32 {
			return e, fmt.Errorf("tensor %q: is of type %v, expected F32", t.Name, t.Type)
		}
	}
	for i := range len(counts.Data) / 4 {
		n := float64(float32At(counts.Data, i))
		if !(n > -0.5 && n <= maxCount) {
			return e, fmt.Errorf("tensor %q: count %d is %g", counts.Name, i, n)
		}
		e.Counts = append(e.Counts, int64(math.Round(n)))
	}
	e.Sums = make([]float64, len(sums.Data)/4)
	for i := range e.Sums {
		e.Sums[i] = float64(float32At(sums.Data, i))
	}
	if exact := g.Tensor(name + endExact); exact != nil {
		if exact.Type != quant.F64 || len(exact.Data) != 8*len(e.Sums) {
			return e, fmt.Errorf("tensor %q: %v of type %v beside %d sums, expected as many in F64", exact.Name,
				exact.Shape, exact.Type, len(e.Sums))
		}
		e.Sums = float64s(exact.Data)
	}
	if cov := g.Tensor(name + endCovariance); cov != nil {
		n := len(e.Sums)
		if cov.Type != quant.F64 || len(cov.Shape) > 2 || cov.Shape[0] != n || len(cov.Data)/8/n != n {
			return e, fmt.Errorf("tensor %q: %v of type %v beside %d sums, expected [%d %d] in F64", cov.Name,
				cov.Shape, cov.Type, n, n, n)
		}
		e.Covariance = float64s(cov.Data)
		notFinite := func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }
		if i := slices.IndexFunc(e.Covariance, notFinite); i >= 0 {
			return e, fmt.Errorf("tensor %q: value %d is %g", cov.Name, i, e.Covariance[i])
		}
	}
	return e, e.check()
}

func float32At(b []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
}

func float64s(b []byte) []float64 {
	x := make([]float64, len(b)/8)
	for i := range x {
		x[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return x
}

// Write writes the form that the ending of path asks for: the old one for .dat, else GGUF.
func (m *Matrix) Write(w io.Writer, path string) error {
	if strings.HasSuffix(path, ".dat") {
		return m.WriteDat(w)
	}
	return m.writeGGUF(w, false)
}

// WritePart writes a matrix that is to be continued: a GGUF file that has the sums in F64 as well, and what they were
// gathered from. llama-quantize reads it as any other.
func (m *Matrix) WritePart(w io.Writer) error { return m.writeGGUF(w, true) }

// tensor is a tensor of a file in the making: float32 or float64 values.
type tensor struct {
	info gguf.TensorInfo
	at   func(i int) float64
}

// writeGGUF writes the GGUF form; exact adds what a matrix needs to be continued.
func (m *Matrix) writeGGUF(w io.Writer, exact bool) error {
	size, scale := m.ChunkSize, 1.0
	if size == 0 { // from the old form: blocks become tokens, as in llama-imatrix
		size, scale = DefaultBlock, DefaultBlock
	}
	if m.Chunks < 0 || m.Chunks > math.MaxUint32 || size > math.MaxUint32 {
		return fmt.Errorf("%d blocks of %d tokens do not fit into the file form", m.Chunks, size)
	}
	kv := &gguf.Metadata{}
	kv.Set(keyType, typeImatrix)
	kv.Set(keyDatasets, append([]string{}, m.Datasets...))
	kv.Set(keyChunks, uint32(m.Chunks))
	kv.Set(keySize, uint32(size))
	if exact {
		kv.Set(keyModel, m.Model)
		kv.Set(keyText, m.Text)
		kv.Set(keyAct, m.Act)
		kv.Set(keyKV, m.KV)
	}
	var tensors []tensor
	for i := range m.Entries {
		tensors = append(tensors, m.Entries[i].tensors(scale, exact)...)
	}
	infos := make([]gguf.TensorInfo, len(tensors))
	for i := range tensors {
		infos[i] = tensors[i].info
	}
	out, err := gguf.NewWriter(w, kv, infos)
	if err != nil {
		return err
	}
	for i := range tensors {
		if err := tensors[i].write(out); err != nil {
			return err
		}
	}
	return out.Close()
}

// tensors are those of an entry, sums and counts times scale.
func (e *Entry) tensors(scale float64, exact bool) []tensor {
	n := len(e.Counts)
	matrices := func(columns int) []int { // ggml has no dimensions of one behind others
		if n == 1 {
			return []int{columns}
		}
		return []int{columns, n}
	}
	sum := func(i int) float64 { return e.Sums[i] * scale }
	list := []tensor{
		{gguf.TensorInfo{Name: e.Name + endSums, Type: quant.F32, Shape: matrices(e.columns())}, sum},
		{gguf.TensorInfo{Name: e.Name + endCounts, Type: quant.F32, Shape: matrices(1)},
			func(i int) float64 { return float64(e.Counts[i]) * scale }},
	}
	if exact {
		list = append(list, tensor{gguf.TensorInfo{Name: e.Name + endExact, Type: quant.F64,
			Shape: matrices(e.columns())}, sum})
	}
	if e.Covariance != nil {
		list = append(list, tensor{gguf.TensorInfo{Name: e.Name + endCovariance, Type: quant.F64,
			Shape: []int{len(e.Sums), len(e.Sums)}},
			func(i int) float64 { return e.Covariance[i] }})
	}
	return list
}

// write writes the values of a tensor, a few at a time.
func (t *tensor) write(w io.Writer) error {
	const some = 1 << 13
	n := 1
	for _, d := range t.info.Shape {
		n *= d
	}
	var b []byte
	for i := range n {
		if t.info.Type == quant.F32 {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(t.at(i))))
		} else {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(t.at(i)))
		}
		if (i+1)%some == 0 || i+1 == n {
			if _, err := w.Write(b); err != nil {
				return err
			}
			b = b[:0]
		}
	}
	return nil
}
