package main

import (
	"bytes"
	"os"
	"testing"

	"ck/internal/testkit"
)

// The committed file is what the generator writes, and it is small.
func TestFileIsCurrent(t *testing.T) {
	want, err := build(testkit.Data(t, "models/stories260K/model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("stories260K.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("stories260K.gguf (%d bytes) is not what the generator writes (%d bytes); run go generate", len(got), len(want))
	}
	if len(want) >= 1<<20 {
		t.Errorf("%d bytes, expected less than 1 MiB", len(want))
	}
}
