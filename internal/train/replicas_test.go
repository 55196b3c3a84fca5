package train

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"ck/internal/cost"
	"ck/internal/graph"
	"ck/internal/quant"
	"ck/internal/synth"
	"ck/internal/topo"
	"ck/internal/walk"
)

// toyShape has matrices of several parts with rests, and one with two terms: it is tied.
var toyShape = synth.Shape{Arch: "llama", Layers: 1, Hidden: 64, FFN: 96, Heads: 2, KVHeads: 1, HeadDim: 32, Vocab: 531, Context: 64, RopeBase: 1e4, Tied: true}

// toyPlaces are those of so many replicas of so many workers, which share the CPUs that there are, with memory on nodes.
func toyPlaces(t *testing.T, replicas, workers int, nodes ...int) (places []Place) {
	t.Helper()
	m, err := topo.Live()
	if err != nil {
		t.Fatal(err)
	}
	cpus := m.CPUsFor(replicas * workers)
	for r := range replicas {
		places = append(places, Place{CPUs: cpus[r*workers:][:workers], Nodes: nodes, Shared: true})
	}
	return places
}

// toyTrainer trains replicas of a model of toyShape.
func toyTrainer(t *testing.T, places []Place, leaf, leaves, batch int, typ quant.Type) (*Trainer, *Replicas) {
	t.Helper()
	return toyTrainerOf(t, places, batch, NetOptions{Leaf: leaf, Leaves: leaves, Type: typ, Table: table()})
}

func toyTrainerOf(t *testing.T, places []Place, batch int, opt NetOptions) (*Trainer, *Replicas) {
	t.Helper()
	x, err := NewReplicas(places, opt, func(opt NetOptions) (*Net, error) {
		m, err := cost.OfShape("toy", toyShape, "F32")
		if err != nil {
			return nil, err
		}
		return NewNet(clone(m.Graph), opt, func(w graph.Weight, dst []float32) error {
			h := fnv.New64()
			io.WriteString(h, w.Name)
			rng := rand.New(rand.NewPCG(h.Sum64(), 1))
			for i := range dst {
				dst[i] = float32(rng.NormFloat64()) * 0.05
				if w.Rows == 1 {
					dst[i]++
				}
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	how := Options{Batch: batch, Optimizer: adamw(), Schedule: Schedule{Kind: "cosine", Rate: 3e-3, Floor: 0.1, Warmup: 2, Steps: 60}, CheckReplicas: 7}
	tr, err := NewTrainer(x.Nets[0], how, x.Nets[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return tr, x
}

// Whatever the replicas, their workers and the walks: checkpoints are the same bytes, and so is the loss of what is held out. All ways make 10 steps, a third of
// them 50, so that each number meets each other.
func TestSameReplicas(t *testing.T) {
	const leaf, batch, few, steps = 16, 8, 10, 50
	data := batches(toyShape.Vocab, leaf, batch, steps)
	val := batches(toyShape.Vocab, leaf, 12, 1)[0]
	want, first, last := map[int]string{}, 0.0, 0.0
	for l, leaves := range []int{1, 2, 4} {
		for r, replicas := range []int{1, 2, 4} {
			if replicas*leaves > batch {
				if err := CheckBatch(batch, leaves, replicas); !errors.Is(err, ErrBatch) {
					t.Errorf("%d replicas, walks of %d leaves: %v", replicas, leaves, err)
				}
				continue
			}
			for w, workers := range []int{1, 2, 3} {
				x, _ := toyTrainer(t, toyPlaces(t, replicas, workers), leaf, leaves, batch, quant.F32)
				n := few
				if (l+r+w)%3 == 0 && !testing.Short() {
					n = steps
				}
				for i, b := range data[:n] {
					s, err := x.Step(b, nil)
					if err != nil {
						t.Fatal(err)
					}
					if last = s.Loss; i == 0 {
						first = last
					}
					if i != few-1 && i != steps-1 {
						continue
					}
					loss, _, err := x.Evaluate(val, nil)
					if err != nil {
						t.Fatal(err)
					}
					got := fmt.Sprintf("%x, loss %v, held out %v", sha256.Sum256(saved(t, x)), s.Loss, loss)
					if want[i] == "" {
						want[i] = got
					}
					if got != want[i] {
						t.Errorf("%d replicas of %d workers, %d walks of %d leaves: checkpoint %d is %s; one replica of one worker has %s", replicas, workers, batch/leaves/replicas, leaves, i+1, got, want[i])
					}
				}
				if n == steps && last > 0.7*first {
					t.Errorf("the loss went from %v to %v", first, last)
				}
			}
		}
	}
}

// A mixture whose load is balanced, parts of tensors and adapters: replicas make the same checkpoints, and say the same loss, norm and balance.
func TestSameReplicasOfKinds(t *testing.T) {
	const leaf, leaves, batch, steps = 32, 1, 4, 3
	for _, c := range []struct {
		model   string
		balance float64
		rank    int
	}{{"mixtral", 3, 0}, {"gpt-oss", 0.1, 0}, {"phi3", 0, 0}, {"llama-rope-llama3", 0, 4}} {
		m := open(t, c.model)
		want := ""
		for _, replicas := range []int{1, 2, 4} {
			opt := NetOptions{Leaf: leaf, Leaves: leaves, Type: quant.BF16, Table: table(), Balance: c.balance}
			if c.rank > 0 {
				opt.LoRA = &LoRA{Rank: c.rank, Alpha: 8, Targets: regexp.MustCompile("attn_q|ffn_up")}
			}
			x, err := NewReplicas(toyPlaces(t, replicas, 1+replicas%3, []int{0}[:replicas/4]...), opt, func(opt NetOptions) (*Net, error) { return Open(m, opt) })
			if err != nil {
				t.Fatal(err)
			}
			tr, err := NewTrainer(x.Nets[0], Options{Batch: batch, Optimizer: adamw(), Schedule: Schedule{Kind: "constant", Rate: 1e-2, Steps: steps}, CheckReplicas: 1}, x.Nets[1:]...)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, b := range batches(40, leaf, batch, steps) {
				s, err := tr.Step(b, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got += fmt.Sprintf("%+v, ", s); c.balance > 0 != (s.Balance > 0) {
					t.Errorf("%s: %+v", c.model, s)
				}
			}
			got += fmt.Sprintf("%x", sha256.Sum256(saved(t, tr)))
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("%s: %d replicas make %s, one %s", c.model, replicas, got, want)
			}
			labels := map[string]bool{}
			for _, p := range x.Nets[0].panels {
				if l := p.of.Label(); labels[l] && !p.of.Turned {
					t.Errorf("%s: two matrices are %s", c.model, l)
				}
				labels[p.of.Label()] = true
			}
			x.Close()
		}
	}
}

// Products in BF16, memory that is bound to a node, and training that goes on from a checkpoint with other replicas: the same bytes, all of it where it should
// lie. What is estimated is what is taken.
func TestReplicasBound(t *testing.T) {
	const leaf, leaves, batch, steps = 32, 1, 8, 6
	data := batches(toyShape.Vocab, leaf, batch, steps)
	state := State{Options: map[string]string{"lr": "0.003"}, Data: "abc"}
	one, _ := toyTrainer(t, toyPlaces(t, 1, 2), leaf, leaves, batch, quant.BF16)
	four, x := toyTrainer(t, toyPlaces(t, 4, 2, 0), leaf, leaves, batch, quant.BF16)
	for i, b := range data {
		if i == steps/2 {
			if err := four.Restore(checkpoint(t, saved(t, one)), state); err != nil {
				t.Fatal(err)
			}
		}
		for _, y := range []*Trainer{one, four} {
			if y == four && i < steps/2 {
				continue
			}
			if _, err := y.Step(b, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !bytes.Equal(saved(t, one), saved(t, four)) {
		t.Error("four replicas that went on from the checkpoint of one made another one")
	}
	var kinds []string
	for _, p := range x.Where() {
		if p.Err == nil && p.Share() != 1 {
			t.Errorf("replica %d: %s: %+v", p.Replica, p.What, p.Placement)
		}
		if p.Replica == 3 {
			kinds = append(kinds, p.What)
		}
	}
	if slices.Sort(kinds); strings.Join(kinds, ", ") != "buffers, keys and values, masters and moments, panels, sums" {
		t.Errorf("bound are %v", kinds)
	}
	m, err := cost.OfShape("toy", toyShape, "F32")
	if err != nil {
		t.Fatal(err)
	}
	each, _, err := Estimate(clone(m.Graph), x.Nets[0].opt, 2, batch/4, "adamw")
	if err != nil {
		t.Fatal(err)
	}
	each.Decode = 5 << 20 // there is no such matrix here; it is there once
	all, taken := each.Times(4), Memory{Values: each.Values, Moments: each.Moments, Sums: each.Sums * 4, Cache: each.Cache * 4, Decode: 5 << 20}
	for _, n := range x.Nets {
		for _, p := range n.panels {
			taken.Panels += int64(len(p.mem))
		}
		taken.Walk += int64(n.Plan().Arena)
	}
	taken.Rest = Garbage(taken.Total())
	if all != taken {
		t.Errorf("estimated %+v, taken %+v", all, taken)
	}
}

// The gradients that replicas own are the sums over the tree of the replicas, term by term; together they are all.
func TestTops(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for _, replicas := range []int{1, 2, 4, 8} {
		x, _ := toyTrainer(t, toyPlaces(t, replicas, 1+replicas%3), 32, 1, 8, quant.F32)
		var terms [][][]float32 // by replica
		for _, s := range x.sums {
			var list [][]float32
			for _, p := range s.net.Params {
				for range p.gradients {
					v := make([]float32, len(p.Value))
					for i := range v {
						v[i] = float32(rng.NormFloat64())
					}
					list = append(list, v)
				}
			}
			terms = append(terms, list)
			s.last = nil
			for _, v := range list {
				s.last = append(s.last, slices.Clone(v))
			}
		}
		var tree func(from, to, term, i int) float32
		tree = func(from, to, term, i int) float32 {
			if to-from == 1 {
				return terms[from][term][i]
			}
			return tree(from, (from+to)/2, term, i) + tree((from+to)/2, to, term, i)
		}
		norm := 0.0
		seen := make([][]bool, len(x.Net.Params))
		got := make([][]float32, len(x.Net.Params))
		for i, p := range x.Net.Params {
			seen[i], got[i] = make([]bool, len(p.Value)), make([]float32, len(p.Value))
		}
		for r := range replicas {
			own, err := x.tops.add(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := x.nets[r].shard(own, r, replicas, func(i, lo, hi int) {
				copy(got[i][lo:hi], own[i][lo:hi])
				for j := lo; j < hi; j++ {
					if seen[i][j] {
						t.Errorf("%d replicas: %s: element %d has two owners", replicas, x.Net.Params[i].Name, j)
					}
					seen[i][j] = true
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		term, doubled := 0, false
		for i, p := range x.Net.Params {
			for j := range got[i] {
				want := tree(0, replicas, term, j)
				for k := range p.gradients[1:] {
					want += tree(0, replicas, term+1+k, j)
				}
				if !seen[i][j] || math.Float32bits(got[i][j]) != math.Float32bits(want) {
					t.Fatalf("%d replicas: %s: element %d is %v, expected %v, owned %v", replicas, p.Name, j, got[i][j], want, seen[i][j])
				}
				norm += float64(want) * float64(want)
			}
			term += len(p.gradients)
			doubled = doubled || len(p.gradients) > 1
		}
		if !doubled {
			t.Error("no parameter has two terms")
		}
	}
}

// A replica whose panels differ by one bit is found before the step changes anything, with the step and the tensor.
func TestReplicaDiffers(t *testing.T) {
	data := batches(toyShape.Vocab, 32, 4, 9)
	for _, typ := range []quant.Type{quant.F32, quant.BF16} {
		x, y := toyTrainer(t, toyPlaces(t, 4, 2), 32, 1, 4, typ)
		for i, b := range data[:7] {
			panels := y.Nets[1+i%3].panels
			p := panels[i%len(panels)]
			at := len(p.mem)/2 + i
			p.mem[at] ^= 1 // the lowest bit of a number
			before := saved(t, x)
			_, err := x.Step(b, nil)
			var differs *ReplicaError
			switch found := errors.As(err, &differs); {
			case i < 6 && err != nil:
				t.Fatalf("step %d, which compares nothing: %v", i+1, err)
			case i == 6 && (!found || *differs != ReplicaError{7, 1, p.of.Label()}):
				t.Errorf("a bit of %s of replica 1 before step 7: %v", p.of.Label(), err)
			case i == 6 && !bytes.Equal(before, saved(t, x)):
				t.Error("the step changed something")
			}
		}
		if err := x.renew(&atomic.Bool{}); err != nil {
			t.Fatal(err)
		}
		for i, p := range y.Nets[3].panels { // wherever the bit is
			for _, at := range []int{0, hashed - 1, hashed, len(p.mem) - 1} {
				if at = min(at, len(p.mem)-1); at >= 0 {
					p.mem[at] ^= 128
					err := x.same(&atomic.Bool{})
					if differs := (*ReplicaError)(nil); !errors.As(err, &differs) || *differs != (ReplicaError{7, 3, p.of.Label()}) {
						t.Errorf("panels %d, byte %d: %v", i, at, err)
					}
					p.mem[at] ^= 128
				}
			}
		}
		if _, err := x.Step(data[7], nil); err != nil || x.Done != 7 {
			t.Errorf("panels that were packed anew: %v", err)
		}
	}
}

// A replica that panics, or has an error, ends the step of all; it is told once, and nothing is changed. So does who asks for it.
func TestReplicaFails(t *testing.T) {
	const batch = 8
	data := batches(toyShape.Vocab, 32, batch, 2)
	x, y := toyTrainer(t, toyPlaces(t, 4, 2), 32, 1, batch, quant.F32)
	if _, err := x.Step(data[0], nil); err != nil {
		t.Fatal(err)
	}
	before := saved(t, x)
	boom := errors.New("boom")
	hook := func(f func()) walk.Hook {
		return func(w, i int) {
			if w == 1 && i == 20 {
				f()
			}
		}
	}
	bad := slices.Clone(data[1])
	bad[5].IDs = slices.Clone(bad[5].IDs) // of replica 2
	bad[5].IDs[3] = int32(toyShape.Vocab)
	var stop atomic.Bool
	for _, c := range []struct {
		name    string
		hook    walk.Hook // of replica 1
		batch   []Leaf
		says    string
		is      error
		stopped bool
	}{
		{"panic", hook(func() { panic(boom) }), data[1], "replica 1: internal error: worker 1: boom", boom, true},
		{"error", nil, bad, "replica 2: token 3 is id 531, the vocabulary has 531", nil, true},
		{"stop", hook(func() { stop.Store(true) }), data[1], walk.ErrStopped.Error(), walk.ErrStopped, true},
		{"stop before", nil, data[1], walk.ErrStopped.Error(), walk.ErrStopped, true},
	} {
		y.Nets[1].walk.Hook = c.hook
		stop.Store(c.name == "stop before")
		_, err := x.Step(c.batch, &stop)
		if err == nil || err.Error() != c.says || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", c.name, err)
		}
		if !stop.Load() {
			t.Errorf("%s: nobody told the others", c.name)
		}
		if !bytes.Equal(before, saved(t, x)) {
			t.Errorf("%s: something changed", c.name)
		}
	}
	y.Nets[1].walk.Hook = nil
	stop.Store(false)
	err := x.all(&stop, func(r int) error { // outside of a team
		if r == 3 {
			panic("lost")
		}
		for !stop.Load() {
		}
		return walk.ErrStopped
	})
	if err == nil || err.Error() != "replica 3: internal error: worker 0: lost" {
		t.Errorf("a panic beside the workers: %v", err)
	}
	ref, _ := toyTrainer(t, toyPlaces(t, 1, 1), 32, 1, batch, quant.F32)
	for _, b := range data { // all go on
		if ref.Done == 1 {
			if _, err := x.Step(b, nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := ref.Step(b, nil); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(saved(t, ref), saved(t, x)) {
		t.Error("what came behind the failures has other bits")
	}
}

// Gradients that are no numbers are found in any shard, the last tensor first.
func TestBadStepOfReplicas(t *testing.T) {
	for _, replicas := range []int{1, 2, 4} {
		x, _ := toyTrainer(t, toyPlaces(t, replicas, 1), 32, 1, 4, quant.F32)
		for i, p := range x.Net.Params {
			for r := range replicas {
				for k := range x.tops.whole[r] {
					x.tops.whole[r][k] = make([]float32, len(x.Net.Params[k].Value))
				}
			}
			for _, at := range []int{0, len(p.Value) / 2, len(p.Value) - 1} {
				for r := range replicas { // the owner has it, whoever that is
					x.tops.whole[r][0][0], x.tops.whole[r][i][at] = float32(math.NaN()), float32(math.Inf(-1))
				}
				var bad *BadStepError
				if err := x.check(Step{Norm: math.NaN(), Loss: 1}); !errors.As(err, &bad) || bad.Where != "the gradient of "+p.Name {
					t.Errorf("%d replicas, element %d of %s: %v", replicas, at, p.Name, err)
				}
				for r := range replicas {
					x.tops.whole[r][i][at] = 0
				}
			}
		}
	}
}

// Two sockets of two nodes of two cores with a sibling each, and memory that has no cores.
func survey() *topo.Survey {
	s := &topo.Survey{}
	for id := range 16 {
		s.CPUs = append(s.CPUs, topo.CPU{ID: id, Package: id % 8 / 4, Core: id % 8, Lead: id % 8, Node: id % 8 / 2})
		s.Affinity = append(s.Affinity, id)
	}
	for n := range 4 {
		s.Nodes = append(s.Nodes, topo.Node{ID: n, CPUs: []int{2 * n, 2*n + 1, 2*n + 8, 2*n + 9}, MemTotal: 1 << 30, Allowed: true})
	}
	s.Nodes = append(s.Nodes, topo.Node{ID: 9, MemTotal: 1 << 30, Allowed: true})
	return s
}

func TestPlaces(t *testing.T) {
	for _, c := range []struct {
		how     string
		threads int
		want    []Place
	}{
		{"node", 0, []Place{{[]int{0, 1}, []int{0}, false}, {[]int{2, 3}, []int{1}, false}, {[]int{4, 5}, []int{2}, false}, {[]int{6, 7}, []int{3}, false}}},
		{"socket", 0, []Place{{[]int{0, 1, 2, 3}, []int{0, 1}, false}, {[]int{4, 5, 6, 7}, []int{2, 3}, false}}},
		{"socket", 5, []Place{{[]int{0, 1}, []int{0}, false}, {[]int{4, 5, 6}, []int{2, 3}, false}}},
		{"node", 1, []Place{{[]int{0}, []int{0}, false}, {[]int{2}, []int{1}, false}, {[]int{4}, []int{2}, false}, {[]int{6}, []int{3}, false}}},
		{"node", 13, []Place{{[]int{0, 1, 8}, []int{0}, false}, {[]int{2, 3, 10}, []int{1}, false}, {[]int{4, 5, 12}, []int{2}, false}, {[]int{6, 7, 14, 15}, []int{3}, false}}},
		{"1", 0, []Place{{[]int{0, 1, 2, 3, 4, 5, 6, 7}, nil, false}}},
		{"2", 0, []Place{{[]int{0, 1, 2, 3}, []int{0, 1}, false}, {[]int{4, 5, 6, 7}, []int{2, 3}, false}}},
		{"3", 3, []Place{{[]int{0}, []int{0}, false}, {[]int{1}, []int{0}, false}, {[]int{2}, []int{1}, false}}},
		{"4", 2, []Place{{[]int{0}, []int{0}, true}, {[]int{0}, []int{0}, true}, {[]int{1}, []int{0}, true}, {[]int{1}, []int{0}, true}}},
	} {
		got, notes, err := Places(survey(), c.how, c.threads)
		if err != nil || !reflect.DeepEqual(got, c.want) || len(notes) != 1 {
			t.Errorf("%s, %d threads: %+v, notes %q, %v; expected %+v", c.how, c.threads, got, notes, err, c.want)
		}
	}
	for _, how := range []string{"", "0", "-1", "x", "1025", "1.5", "sockets"} {
		if _, _, err := Places(survey(), how, 0); err == nil || !strings.Contains(err.Error(), "expected socket, node or a number of replicas from 1 to 1024") {
			t.Errorf("%q: %v", how, err)
		}
	}
	s := survey()
	for i := range s.CPUs {
		s.CPUs[i].Package = -1
	}
	if got, _, err := Places(s, "socket", 0); err != nil || len(got) != 4 {
		t.Errorf("packages that are not told: %+v, %v", got, err)
	}
}

// A batch that cannot be dealt is refused with what can be.
func TestCheckBatch(t *testing.T) {
	for _, c := range []struct {
		batch, leaves, replicas int
		says                    string
	}{
		{8, 2, 4, ""}, {1, 1, 1, ""}, {8, 8, 1, ""},
		{6, 1, 1, "6 leaves in walks of 1"}, {0, 1, 1, "0 leaves"}, {8, 16, 1, "a replica has 8 leaves of 8, a walk 16; take walks of 8"},
		{8, 1, 3, "8 leaves do not divide by 3 replicas; take 2 replicas"}, {8, 1, 16, "8 leaves do not divide by 16 replicas; take a batch of 16, or 8 replicas"},
		{2, 1, 12, "take 2 replicas"}, {8, 4, 4, "a replica has 2 leaves of 8, a walk 4; take walks of 2"}, {8, 3, 1, "in walks of 3"},
	} {
		err := CheckBatch(c.batch, c.leaves, c.replicas)
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, ErrBatch) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Nodes that have no room for their replicas are said once: what is there once counts in shares, nodes within others count with these.
func TestLacks(t *testing.T) {
	room := func(nodes []int) (n int64) {
		for _, node := range nodes {
			if node > 8 {
				return -1
			}
			n += 100 << 20 >> node
		}
		return n
	}
	each := Memory{Values: 8 << 20, Moments: 16 << 20, Panels: 30 << 20, Walk: 5 << 20, Sums: 4 << 20, Cache: 3 << 20, Decode: 1 << 40, Rest: 1 << 40}
	for _, c := range []struct {
		nodes [][]int // by replica
		want  []string
	}{
		{[][]int{nil}, nil},
		{[][]int{{0}, {1}}, []string{"replicas take 54.0 MiB at nodes 1, which have room for 50.0 MiB"}}, // 42 and 24 / 2
		{[][]int{{0}, {0}}, []string{"replicas take 108.0 MiB at nodes 0, which have room for 100.0 MiB"}},
		{[][]int{{0}, {0, 1}, {9}, nil}, nil},
		{[][]int{{0}, {0, 1}, {0, 1}, {0, 1}}, []string{"replicas take 192.0 MiB at nodes 0,1, which have room for 150.0 MiB"}},
		{[][]int{{0}, {0, 2}, {2}}, []string{"replicas take 150.0 MiB at nodes 0,2, which have room for 125.0 MiB", "replicas take 50.0 MiB at nodes 2, which have room for 25.0 MiB"}},
	} {
		var places []Place
		for _, nodes := range c.nodes {
			places = append(places, Place{Nodes: nodes})
		}
		if got := lacks(places, each, room); !slices.Equal(got, c.want) {
			t.Errorf("nodes %v: %q, expected %q", c.nodes, got, c.want)
		}
	}
}
