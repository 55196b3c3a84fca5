package cli

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ck/internal/gguf"
	"ck/internal/hf"
	"ck/internal/testkit"
)

// fp8Tensor is a tensor of a safetensors file.
type fp8Tensor struct {
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Ends  [2]int `json:"data_offsets"`
	data  []byte
}

// fp8Style says where a folder's scales lie.
type fp8Style struct {
	suffix string
	config map[string]any
	high   int // rows and columns of a scale; 0: all
	wide   int
}

var fp8Styles = map[string]fp8Style{
	"blocks": {"_scale_inv", map[string]any{"quant_method": "fp8", "weight_block_size": []int{128, 128}}, 128, 128},
	"small":  {"_scale_inv", map[string]any{"quant_method": "fp8", "weight_block_size": []int{24, 40}}, 24, 40},
	"rows":   {"_scale", map[string]any{"quant_method": "fbgemm_fp8"}, 1, 0},
}

// e4m3 is the value of a code, by the format's definition.
func e4m3(code byte) float64 {
	e, m := int(code>>3&15), float64(code&7)
	x := math.Ldexp(8+m, e-10)
	if e == 0 {
		x = math.Ldexp(m, -9)
	}
	if code > 127 {
		return -x
	}
	return x
}

// toE4M3 is the code of the nearest value.
func toE4M3(x float64) (code byte) {
	for c := range 256 {
		if c&127 != 127 && math.Abs(e4m3(byte(c))-x) < math.Abs(e4m3(code)-x) {
			code = byte(c)
		}
	}
	return code
}

// toBF16 rounds to the nearest, of two to the even one.
func toBF16(x float32) uint16 {
	b := math.Float32bits(x)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// fp8Folder makes an FP8 folder of one in F32. It returns what the weights are in BF16, by the folder's names.
func fp8Folder(t *testing.T, from string, style fp8Style, damage func(name string, codes []byte)) (dir string,
	want map[string][]byte) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, name), b)
	}
	var config map[string]any
	b, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err == nil {
		err = json.Unmarshal(b, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	config["quantization_config"] = style.config
	if b, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "config.json"), b)
	tensors := readSafetensors(t, filepath.Join(from, "model.safetensors"))
	want = map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		x := tensors[name]
		if !strings.Contains(name, "_proj.weight") {
			continue
		}
		codes, scale, values := fp8Of(x, style)
		if damage != nil {
			damage(name, codes.data)
		}
		tensors[name], tensors[name+style.suffix], want[name] = codes, scale, values
	}
	writeSafetensors(t, filepath.Join(dir, "model.safetensors"), tensors)
	return dir, want
}

// fp8Of is the codes of a matrix, their scales, and what both mean in BF16.
func fp8Of(x *fp8Tensor, style fp8Style) (codes, scale *fp8Tensor, bf16 []byte) {
	rows, cols := x.Shape[0], x.Shape[1]
	high, wide := style.high, style.wide
	if wide == 0 {
		wide = cols
	}
	scale = &fp8Tensor{DType: "F32", Shape: []int{(rows + high - 1) / high, (cols + wide - 1) / wide}}
	most := make([]float64, scale.Shape[0]*scale.Shape[1])
	at := func(i int) int { return i/cols/high*scale.Shape[1] + i%cols/wide }
	value := func(i int) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(x.data[4*i:]))) }
	for i := range rows * cols {
		most[at(i)] = max(most[at(i)], math.Abs(value(i)))
	}
	for i := range most {
		most[i] = float64(float32(most[i] / 448))
		scale.data = binary.LittleEndian.AppendUint32(scale.data, math.Float32bits(float32(most[i])))
	}
	codes = &fp8Tensor{DType: "F8_E4M3", Shape: x.Shape}
	for i := range rows * cols {
		c := toE4M3(value(i) / most[at(i)])
		codes.data = append(codes.data, c)
		bf16 = binary.LittleEndian.AppendUint16(bf16, toBF16(float32(e4m3(c)*most[at(i)])))
	}
	return codes, scale, bf16
}

func writeFile(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func readSafetensors(t *testing.T, path string) map[string]*fp8Tensor {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := 8 + binary.LittleEndian.Uint64(b)
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b[8:n], &raw); err != nil {
		t.Fatal(err)
	}
	delete(raw, "__metadata__")
	tensors := map[string]*fp8Tensor{}
	for name, text := range raw {
		x := &fp8Tensor{}
		if err := json.Unmarshal(text, x); err != nil {
			t.Fatal(err)
		}
		x.data = b[n:][x.Ends[0]:x.Ends[1]]
		tensors[name] = x
	}
	return tensors
}

func writeSafetensors(t *testing.T, path string, tensors map[string]*fp8Tensor) {
	t.Helper()
	var data []byte
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		x := tensors[name]
		x.Ends = [2]int{len(data), len(data) + len(x.data)}
		data = append(data, x.data...)
	}
	h, err := json.Marshal(tensors)
	if err != nil {
		t.Fatal(err)
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(h)))
	writeFile(t, path, append(append(b, h...), data...))
}

// A folder of FP8 weights becomes a file of BF16 ones: each code times its scale. ckrun computes with either the
// same.
func TestFloat8Folder(t *testing.T) {
	bin := buildPrograms(t)
	from := testkit.Data(t, "models/llama-gqa/hf")
	plain, err := hf.Open(from) // for the order of rows
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	for name, style := range fp8Styles {
		t.Run(name, func(t *testing.T) {
			dir, want := fp8Folder(t, from, style, nil)
			out := filepath.Join(t.TempDir(), "out.gguf")
			if said, err := exec.Command(filepath.Join(bin, "ckquant"), "convert", "-q", dir,
				out).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			m, err := gguf.Open(out)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			for _, x := range m.Tensors {
				part := map[string]string{"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
					"attn_v":      "self_attn.v_proj",
					"attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
					"ffn_down": "mlp.down_proj"}
				words := strings.Split(x.Name, ".")
				if len(words) != 4 || part[words[2]] == "" {
					if string(x.Data) != string(plain.Tensor(x.Name).Data) {
						t.Errorf("%s: other bytes than the folder in F32 has", x.Name)
					}
					continue
				}
				b := want[fmt.Sprintf("model.layers.%s.%s.weight", words[1], part[words[2]])]
				rows := gguf.Tensor{Type: x.Type, Shape: x.Shape, Data: b,
					Interleave: plain.Tensor(x.Name).Interleave}
				for r := range x.Rows() {
					if x.Type.String() != "BF16" || !bytes.Equal(x.Row(r), rows.Row(r)) {
						t.Fatalf("%s, %v: row %d is %x, expected %x", x.Name, x.Type, r, x.Row(r), rows.Row(r))
					}
				}
			}
			var texts []string
			for _, model := range []string{dir, out} {
				text, err := exec.Command(filepath.Join(bin, "ckrun"), "-q", "--temp", "0", "-n", "24", model,
					"once upon").Output()
				if err != nil {
					t.Fatalf("%s: %v", model, err)
				}
				texts = append(texts, string(text))
			}
			if texts[0] != texts[1] || texts[0] == "" {
				t.Errorf("the folder says %q, the file %q", texts[0], texts[1])
			}
		})
	}
}

// A code that is no number is named by tensor, row and column of the output.
func TestFloat8NaN(t *testing.T) {
	bin := buildPrograms(t)
	dir, _ := fp8Folder(t, testkit.Data(t, "models/llama-gqa/hf"), fp8Styles["blocks"],
		func(name string, codes []byte) {
			if name == "model.layers.1.mlp.down_proj.weight" {
				codes[5*112+77] = 0x7f
			}
		})
	cmd := exec.Command(filepath.Join(bin, "ckquant"), "convert", "-q", dir, filepath.Join(t.TempDir(), "out.gguf"))
	said, err := cmd.CombinedOutput()
	if exitCode(err) != 3 || !strings.Contains(string(said), "blk.1.ffn_down.weight") ||
		!strings.Contains(string(said), "row 5") ||
		!strings.Contains(string(said), "column 77") {
		t.Errorf("%v: %s", err, said)
	}
}
