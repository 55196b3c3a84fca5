package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"ck/internal/arch"
	"ck/internal/gguf"
	"ck/internal/graph"
	"ck/internal/kernel"
	"ck/internal/panelfile"
	"ck/internal/walk"
)

// NoPanels is the word of --panels for none.
const NoPanels = "none"

// PanelsSuffix is behind the name of a model in the name of its panels.
const PanelsSuffix = ".panels"

// FindPanels is the file that a word of --panels means for the model at path: for "" the one beside the model, if
// it is there.
func FindPanels(word, path string) string {
	switch {
	case word == NoPanels || word == "" && path == "":
		return ""
	case word != "":
		return word
	}
	beside := filepath.Clean(path) + PanelsSuffix
	if info, err := os.Stat(beside); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return beside
}

// PlanPanels lays out a file with the panels of all matrices that this build multiplies from panels. pack makes them.
func PlanPanels(m *gguf.Model, tier string) (p *panelfile.Plan, pack panelfile.Pack, err error) {
	t, f, err := chooseTier(tier)
	if err != nil {
		return nil, nil, err
	}
	g, _, err := arch.Build(source{m.KV, m})
	if err != nil {
		return nil, nil, &ModelError{m.Path, err}
	}
	var list []*panelfile.Matrix
	formats, weights := map[string]*kernel.Format{}, labels(g)
	tbl := kernel.For(t, f)
	for i, w := range g.Weights {
		t := m.Tensor(w.Name)
		if !g.Roles(graph.WeightID(i))[graph.Matrix] || !decodable(t.Type) || formats[w.Label()] != nil {
			continue
		}
		f := tbl.Format(t.Type, false)
		if f.Direct {
			continue
		}
		layout, version := f.Layout()
		formats[w.Label()] = f
		size := f.PanelBytes(w.Cols)
		list = append(list, &panelfile.Matrix{Name: w.Label(), Type: t.Type.String(), Layout: layout, Version: version,
			Rows: w.Rows, Cols: w.Cols, PanelBytes: size, Panels: walk.PanelsBytes(w, f) / size})
	}
	if len(list) == 0 {
		return nil, nil, &ModelError{m.Path, errors.New("none of its weights has panels")}
	}
	src, err := sourceOf(m, weights, list)
	if err != nil {
		return nil, nil, &ModelError{m.Path, err}
	}
	if p, err = panelfile.NewPlan(src, list); err != nil {
		return nil, nil, &ModelError{m.Path, err}
	}
	return p, func(dst []byte, x *panelfile.Matrix, p int) error {
		w, f := weights[x.Name], formats[x.Name]
		t := m.Tensor(w.Name)
		from, to := walk.PanelRows(w, f, p)
		first := w.TensorRow(from)
		err := m.Guard(func() error {
			f.Pack(dst, x.Cols, to-from, func(r int) []byte { return t.Row(first + r) })
			return nil
		})
		if err != nil {
			err = &ModelError{m.Path, err}
		}
		return err
	}, nil
}

// labels are the weights of a graph, by what files of panels call them.
func labels(g *graph.Graph) map[string]graph.Weight {
	m := map[string]graph.Weight{}
	for _, w := range g.Weights {
		m[w.Label()] = w
	}
	return m
}

// sourceOf tells whose panels a file has.
func sourceOf(m *gguf.Model, weights map[string]graph.Weight, list []*panelfile.Matrix) (panelfile.Source, error) {
	src, err := sample(m, weights, list)
	if err == nil {
		src.Contents, err = contents(m, weights, list)
	}
	return src, err
}

// contents reads all data of matrices.
func contents(m *gguf.Model, weights map[string]graph.Weight, list []*panelfile.Matrix) (uint32, error) {
	sums, errs := make([]byte, 4*len(list)), make([]error, len(list))
	var crew sync.WaitGroup
	var next atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		crew.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(list); i = int(next.Add(1)) - 1 {
				errs[i] = m.Guard(func() error {
					binary.LittleEndian.PutUint32(sums[4*i:], dataSum(m.Tensor(weights[list[i].Name].Name)))
					return nil
				})
			}
		})
	}
	crew.Wait()
	return crc32.Checksum(sums, castagnoli), errors.Join(errs...)
}

// dataSum is the checksum of a tensor's data, of its rows where these are computed, of its chunks' checksums where it is
// compressed.
func dataSum(t *gguf.Tensor) (sum uint32) {
	switch {
	case t.Stored != nil:
		return t.Stored.Sum()
	case t.Make == nil && t.Parts == nil:
		return crc32.Checksum(t.Data, castagnoli)
	}
	rows := t.Reader()
	for r := range t.Rows() {
		sum = crc32.Update(sum, castagnoli, rows.Row(r))
	}
	return sum
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// samplePiece is how many bytes of a tensor are looked at in each of two places.
const samplePiece = 4 << 10

// sample looks at sizes, types, shapes, and 4 KiB in two places of each matrix: enough where the files are as old as
// they were. It reads the file, so that no page of it is mapped.
func sample(m *gguf.Model, weights map[string]graph.Weight, list []*panelfile.Matrix) (panelfile.Source, error) {
	src, h := panelfile.Source{Bytes: m.SizeBytes()}, sha256.New()
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for _, path := range m.Files() {
		f, err := os.Open(path)
		if err != nil {
			return src, err
		}
		files = append(files, f)
		info, err := f.Stat()
		if err != nil {
			return src, err
		}
		src.Modified = max(src.Modified, info.ModTime().UnixNano())
	}
	for _, x := range list {
		t := m.Tensor(weights[x.Name].Name)
		fmt.Fprintf(h, "%q %v %v %d %d\n", t.Name, t.Type, t.Shape, t.Interleave, len(t.Data))
		if t.Stored != nil {
			fmt.Fprintln(h, t.Stored.Sum())
			continue
		}
		if len(t.Parts) > 0 {
			for _, p := range [][]byte{t.Parts[0], t.Parts[len(t.Parts)-1]} {
				h.Write(p[:min(samplePiece, len(p))])
			}
			continue
		}
		for _, at := range []int{len(t.Data) / 4, len(t.Data) / 4 * 3} {
			if err := samplePart(h, t, files, at); err != nil {
				return src, err
			}
		}
	}
	h.Sum(src.Sample[:0])
	return src, nil
}

// samplePart adds a piece of a tensor.
func samplePart(h hash.Hash, t *gguf.Tensor, files []*os.File, at int) error {
	n := min(samplePiece, len(t.Data)-at)
	if t.File < 0 || t.File >= len(files) {
		h.Write(t.Data[at : at+n])
		return nil
	}
	b := make([]byte, n)
	if _, err := files[t.File].ReadAt(b, t.Offset+int64(at)); err != nil {
		return fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	h.Write(b)
	return nil
}

func (e *Engine) warn(format string, a ...any) {
	e.Warnings = append(e.Warnings, fmt.Sprintf(format, a...))
}

// mapPanels opens the file of panels and takes those that this build can read. What cannot be used is said; then
// the file form is.
func (e *Engine) mapPanels(matrix []bool) error {
	e.mapped = make([]*panelfile.Matrix, len(matrix))
	path := e.opt.Panels
	if path == "" {
		return nil
	}
	if e.opt.NoPack {
		e.note("panels of %s are not used (--no-pack)", path)
		return nil
	}
	if e.layout.N() > 1 {
		e.note("panels of %s are not used: they are of whole matrices, of which each home has a part", path)
		return nil
	}
	f, err := panelfile.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &ModelError{path, errors.New("no such file of panels")}
	case err != nil:
		e.warn("%v; its panels are not used", err)
		return nil
	}
	if why := e.foreign(f); why != "" {
		e.warn("%s: %s; its panels are not used", path, why)
		f.Close()
		return nil
	}
	e.panelFile = f
	all, n, missing, bytes := 0, 0, 0, int64(0)
	refused := map[string]int{}
	for i, w := range e.Graph.Weights {
		if !matrix[i] {
			continue
		}
		all++
		x, format := f.Matrix(w.Label()), e.tbl.Format(e.model.Tensor(w.Name).Type, e.opt.F32Act)
		switch {
		case x == nil && !format.Direct:
			missing++
		case x == nil:
		case !readable(x, w, format):
			refused[e.refusal(x, format)]++
		default:
			e.mapped[i] = x
			n, bytes = n+1, bytes+x.Bytes()
		}
	}
	for _, why := range slices.Sorted(maps.Keys(refused)) {
		e.warn("%s: panels of %d of %d matrices are not used: %s", path, refused[why], all, why)
	}
	if missing > 0 {
		e.warn("%s: has no panels for %d of %d matrices", path, missing, all)
	}
	if n > 0 {
		e.note("panels of %d of %d matrices are mapped from %s, %s; each is compared with its checksum at its first use",
			n, all, path, mib(bytes))
	}
	return nil
}

// foreign says why a file has the panels of another model; "" if it does not.
func (e *Engine) foreign(f *panelfile.File) string {
	if n := e.model.SizeBytes(); f.Bytes != n {
		return fmt.Sprintf("is of a model of %d bytes, this one has %d", f.Bytes, n)
	}
	weights := labels(e.Graph)
	for _, x := range f.Matrices {
		w, ok := weights[x.Name]
		if !ok {
			return fmt.Sprintf("is of another model: tensor %q is not in this one", x.Name)
		}
		if t := e.model.Tensor(w.Name).Type; w.Rows != x.Rows || w.Cols != x.Cols || t.String() != x.Type {
			return fmt.Sprintf("is of another model: tensor %s is %d×%d %s there, %d×%d %s here", x.Name, x.Rows, x.Cols, x.Type, w.Rows, w.Cols, t)
		}
	}
	src, err := sample(e.model, weights, f.Matrices)
	switch {
	case err != nil:
		return fmt.Sprintf("cannot be held against the model: %v", err)
	case src.Sample != f.Sample:
		return "is of another model of the same size and shapes"
	case src.Modified == f.Modified:
		return ""
	}
	// A copy, or another model that differs in a few rows: only all of it tells.
	sum, err := contents(e.model, weights, f.Matrices)
	switch {
	case err != nil:
		return fmt.Sprintf("cannot be held against the model: %v", err)
	case sum != f.Contents:
		return "is of another model, which differs from this one in some weights"
	}
	e.note("the model was written at another time than the one that %s is of: all weights were compared, they are the same", f.Path())
	return ""
}

// readable reports whether panels are those that a format's kernels read.
func readable(x *panelfile.Matrix, w graph.Weight, f *kernel.Format) bool {
	layout, version := f.Layout()
	return x.Layout == layout && x.Version == version && x.Rows == w.Rows && x.Cols == w.Cols &&
		x.PanelBytes == f.PanelBytes(w.Cols) && int64(walk.PanelsBytes(w, f)) == x.Bytes()
}

// refusal says why panels cannot be read.
func (e *Engine) refusal(x *panelfile.Matrix, f *kernel.Format) string {
	layout, version := f.Layout()
	switch {
	case f.Direct: // --act f32: every type that can be used has panels otherwise
		return fmt.Sprintf("they have layout %s version %d, and --act f32 multiplies %s weights without panels",
			x.Layout, x.Version, x.Type)
	case x.Layout == layout && x.Version == version:
		return fmt.Sprintf("they have panels of another size than those of layout %s version %d", layout, version)
	}
	return fmt.Sprintf("they have layout %s version %d, this build has %s version %d; write the file anew with ckquant pack",
		x.Layout, x.Version, layout, version)
}

// damaged is the error of a panel that is not what was written.
func (e *Engine) damaged(d *walk.DamagedPanel) error {
	name := "a tensor"
	if i := slices.IndexFunc(e.weights.Slots, func(parts []*walk.Slot) bool { return slices.Contains(parts, d.Slot) }); i >= 0 {
		name = "tensor " + e.Graph.Weights[i].Name
	}
	err := fmt.Errorf("%s: %w; write the file anew with ckquant pack, or use --panels none", name, d)
	return &ModelError{e.panelFile.Path(), err}
}
