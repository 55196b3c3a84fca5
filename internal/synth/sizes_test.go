package synth

import (
	"reflect"
	"testing"
)

func TestSizes(t *testing.T) {
	z := Sizes{Layers: 2, Hidden: 96, FFN: 160, Heads: 6}
	if got := z.Missing(); got != "vocab" {
		t.Errorf("missing is %q", got)
	}
	z.Vocab = 700
	if got := z.Missing(); got != "" {
		t.Errorf("missing is %q", got)
	}
	base := Shape{Arch: "llama", Context: 64, RopeBase: 1e4}
	want := Shape{Arch: "llama", Context: 64, RopeBase: 1e4, Layers: 2, Hidden: 96, FFN: 160, Heads: 6, KVHeads: 6, HeadDim: 16, Vocab: 700}
	if got := z.Own(base); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	z.KVHeads, z.HeadDim = 3, 32
	want.KVHeads, want.HeadDim = 3, 32
	if got := z.Own(base); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	few := Sizes{Layers: 4, Vocab: 999}
	want.Layers, want.Vocab = 4, 999
	if got := few.In(z.Own(base)); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := (&Sizes{}).Missing(); got != "layers" {
		t.Errorf("missing is %q", got)
	}
}
