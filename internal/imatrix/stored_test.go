package imatrix

import (
	"bytes"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/quant"
)

// Sums in a compressed file are refused.
func TestCompressedSums(t *testing.T) {
	c, ok := gguf.ChunksOf(quant.F32, []int{4, 2})
	if !ok {
		t.Fatal("sums of two rows are not compressed")
	}
	stored := make([]byte, c.IndexBytes())
	gguf.SetIndex(stored, 0, nil)
	gguf.EndIndex(stored)
	kv := &gguf.Metadata{}
	kv.Set("general.type", "imatrix")
	kv.Set(keyDatasets, []string{"x"})
	kv.Set(keyChunks, uint32(1))
	kv.Set(keySize, uint32(512))
	var file bytes.Buffer
	w, err := gguf.NewWriter(&file, kv, []gguf.TensorInfo{
		{Name: "a" + endSums, Type: quant.F32, Shape: []int{4, 2}, Stored: int64(len(stored))}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(stored); err != nil {
		t.Fatal(err)
	}
	if _, err := Read("m", file.Bytes()); err == nil || !strings.Contains(err.Error(), "is compressed") {
		t.Errorf("%v, expected that it is compressed", err)
	}
}
