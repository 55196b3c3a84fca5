package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"testing"

	"ck/internal/entropycode"
	"ck/internal/quant"
)

// compress makes a file of one tensor in its storage form.
func compress(t testing.TB, typ quant.Type, shape []int, data []byte) []byte {
	t.Helper()
	c, ok := ChunksOf(typ, shape)
	if !ok {
		t.Fatalf("%v %v is not compressed", typ, shape)
	}
	index := make([]byte, c.IndexBytes())
	var body []byte
	var coder entropycode.Coder
	size := typ.RowBytes(shape[0])
	for i := range c.Len() {
		end := c.First(i) + c.Rows
		if end = min(end, (c.First(i)/c.Matrix+1)*c.Matrix); end != c.First(i+1) {
			t.Fatalf("%v: chunk %d ends at row %d, the next one begins at %d", shape, i, end, c.First(i+1))
		}
		coded := coder.Append(nil, typ, data[c.First(i)*size:end*size])
		SetIndex(index, i, coded)
		body = append(body, coded...)
	}
	EndIndex(index)
	stored := append(index, body...)
	if n := c.MaxStored(typ, shape[0]); int64(len(stored)) > n {
		t.Fatalf("%v %v takes %d bytes, at most %d were promised", typ, shape, len(stored), n)
	}
	kv := &Metadata{}
	kv.Set("general.name", "x")
	var file bytes.Buffer
	w, err := NewWriter(&file, kv, []TensorInfo{{Name: "v", Type: quant.F32, Shape: []int{2}},
		{Name: "w", Type: typ, Shape: shape, Stored: int64(len(stored))}})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{make([]byte, 8), stored} {
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	return file.Bytes()
}

// random is bytes that a coder can save some of.
func random(n int) []byte {
	rng := rand.New(rand.NewPCG(3, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32() & rng.Uint32())
	}
	return b
}

// Rows of every type come back, one by one, in ranges and in any order, of matrices whose rows fill no chunk.
func TestStoredRows(t *testing.T) {
	for i := range quant.Types {
		typ := quant.Type(i)
		if !typ.Known() {
			continue
		}
		for _, shape := range [][]int{{256, 1}, {256, 64}, {512, 67, 3}, {256, 5, 2, 2}, {256 * 40, 70}} {
			rows := 1
			for _, d := range shape[1:] {
				rows *= d
			}
			size := typ.RowBytes(shape[0])
			data := random(rows * size)
			m, err := FromBytes("m", compress(t, typ, shape, data))
			if err != nil {
				t.Fatalf("%v %v: %v", typ, shape, err)
			}
			if keys := m.KV.Keys(); len(keys) != 1 {
				t.Errorf("keys %v, expected the model's own", keys)
			}
			x := m.Tensor("w")
			if x.Type != typ || x.Bytes() != int64(len(data)) || x.Data != nil || m.Tensor("v").Stored != nil {
				t.Fatalf("%v %v is read as %v %v", typ, shape, x.Type, x.Shape)
			}
			r := x.Reader()
			for n := range rows {
				if row := n * 31 % rows; !bytes.Equal(r.Row(row), data[row*size:(row+1)*size]) {
					t.Fatalf("%v %v: row %d is another", typ, shape, row)
				}
			}
			for from := 0; from < rows; from += 1 + rows/3 {
				n := min(rows-from, 1+rows/2)
				if !bytes.Equal(r.Rows(from, n), data[from*size:(from+n)*size]) {
					t.Fatalf("%v %v: %d rows from %d on are others", typ, shape, n, from)
				}
			}
			if !bytes.Equal(x.Row(rows-1), data[(rows-1)*size:]) {
				t.Fatalf("%v %v: the last row is another", typ, shape)
			}
		}
	}
}

// A flipped bit anywhere in a compressed tensor is an error when the file is opened, or names the rows when they are
// read.
func TestStoredDamage(t *testing.T) {
	shape := []int{64, 200}
	file := compress(t, quant.BF16, shape, random(200*128))
	m, err := FromBytes("m", file)
	if err != nil {
		t.Fatal(err)
	}
	begin := len(file) - len(m.Tensor("w").Stored.data)
	begin -= begin % 32
	rows := map[int]bool{}
	for at := begin; at < len(file); at += 97 {
		bad := bytes.Clone(file)
		bad[at] ^= 4
		m, err := FromBytes("m", bad)
		if err != nil {
			if !strings.Contains(err.Error(), `"w"`) || !strings.Contains(err.Error(), "damaged") {
				t.Errorf("byte %d: %v", at, err)
			}
			continue
		}
		err = m.Guard(func() error { m.Tensor("w").Reader().Rows(0, 200); return nil })
		var d *DamageError
		if !errors.As(err, &d) || d.Tensor != "w" || d.Row%64 != 0 {
			if at < len(file)-31 { // else it may be padding
				t.Errorf("byte %d: %v", at, err)
			}
			continue
		}
		rows[d.Row] = true
	}
	if len(rows) != 4 {
		t.Errorf("damage in chunks that begin at rows %v, expected four", rows)
	}
}

// Sums that are right over nonsense are no way in: lengths are checked, and a chunk that cannot be decoded is damage.
func TestStoredNonsense(t *testing.T) {
	file := compress(t, quant.BF16, []int{64, 64}, random(64*128))
	m, err := FromBytes("m", file)
	if err != nil {
		t.Fatal(err)
	}
	s := *m.Tensor("w").Stored
	s.data = bytes.Clone(s.data)
	for i := range s.data[s.IndexBytes():] {
		s.data[s.IndexBytes()+i] = 0xff
	}
	SetIndex(s.data, 0, s.data[s.IndexBytes():])
	EndIndex(s.data[:s.IndexBytes()])
	if err := s.readIndex(); err != nil {
		t.Fatal(err)
	}
	x := &Tensor{Name: "w", Type: quant.BF16, Shape: []int{64, 64}, Stored: &s}
	if err := m.Guard(func() error { x.Reader().Row(0); return nil }); !errors.As(err, new(*DamageError)) {
		t.Errorf("%v, expected damage", err)
	}
	binary.LittleEndian.PutUint32(s.data, 1<<31)
	EndIndex(s.data[:s.IndexBytes()])
	if err := s.readIndex(); err == nil {
		t.Error("an index of more bytes than there are was taken")
	}
}

// What the keys say is checked.
func TestStoredKeys(t *testing.T) {
	good := func() (*Metadata, []*Tensor) {
		kv := &Metadata{}
		kv.Set(storageVersionKey, uint32(1))
		kv.Set(storageTypesKey, []int32{int32(quant.BF16)})
		kv.Set(storageShapesKey, []uint64{64, 64, 0, 0})
		index := make([]byte, indexEntry+indexSum)
		SetIndex(index, 0, nil)
		EndIndex(index)
		return kv, []*Tensor{{Name: "w", Type: quant.I8, Shape: []int{len(index)}, Data: index}}
	}
	if kv, tensors := good(); unfoldStored(kv, tensors) != nil {
		t.Fatal(unfoldStored(good()))
	}
	for want, spoil := range map[string]func(kv *Metadata, x *Tensor){
		"is 2, expected 1":   func(kv *Metadata, _ *Tensor) { kv.Set(storageVersionKey, uint32(2)) },
		"has 2 elements":     func(kv *Metadata, _ *Tensor) { kv.Set(storageTypesKey, []int32{1, 1}) },
		"expected 1 and 4":   func(kv *Metadata, _ *Tensor) { kv.Set(storageShapesKey, []uint64{64}) },
		"unknown":            func(kv *Metadata, _ *Tensor) { kv.Set(storageTypesKey, []int32{77}) },
		"dimension 0 is 0":   func(kv *Metadata, _ *Tensor) { kv.Set(storageShapesKey, []uint64{0, 64, 0, 0}) },
		"2^63":               func(kv *Metadata, _ *Tensor) { kv.Set(storageShapesKey, []uint64{1 << 40, 1 << 40, 0, 0}) },
		"not compressed by":  func(kv *Metadata, _ *Tensor) { kv.Set(storageShapesKey, []uint64{64, 0, 0, 0}) },
		"too few":            func(kv *Metadata, _ *Tensor) { kv.Set(storageShapesKey, []uint64{64, 1 << 40, 0, 0}) },
		"expected the bytes": func(_ *Metadata, x *Tensor) { x.Type = quant.F32 },
		"damaged":            func(_ *Metadata, x *Tensor) { x.Data[0]++ },
	} {
		kv, tensors := good()
		spoil(kv, tensors[0])
		if err := unfoldStored(kv, tensors); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q in it", err, want)
		}
	}
	if crc32.Checksum([]byte("123456789"), Castagnoli) != 0xe3069283 {
		t.Error("the checksum is not CRC-32C")
	}
}
