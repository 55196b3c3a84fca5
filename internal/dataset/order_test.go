package dataset

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
)

// made is a set of sequences of such lengths; tokens tell sequences apart.
func made(opt Options, lengths ...int) *Set {
	s := &Set{opt: opt, epoch: -1}
	for i, n := range lengths {
		w := make([]int32, n)
		for k := range w {
			w[k] = ^int32(1000*i + k)
		}
		s.train.add(w)
		s.train.examples++
	}
	s.sum()
	s.valPack = s.pack(&s.val, nil)
	return s
}

// firstFit is the definition: each into the first slot that has room.
func firstFit(lengths []int, order []int32, T int) (slots [][]int32) {
	var room []int
	for _, i := range order {
		n := lengths[i]
		at := slices.IndexFunc(room, func(r int) bool { return r >= n })
		if at < 0 {
			at, room, slots = len(room), append(room, T), append(slots, nil)
		}
		room[at] -= n
		slots[at] = append(slots[at], i)
	}
	return slots
}

func randomLengths(r *rand.Rand, n, T int) []int {
	list := make([]int, n)
	for i := range list {
		if list[i] = 2 + r.IntN(T-1); r.IntN(3) > 0 {
			list[i] = 2 + r.IntN(max(1, T/8))
		}
		list[i] = min(list[i], T)
	}
	return list
}

// Packing is first-fit in the order that it is given, for any number of sequences.
func TestPackIsFirstFit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 65, 257} {
		for _, T := range []int{2, 3, 16, 17, 97} {
			lengths := randomLengths(r, n, T)
			s := made(Options{Tokens: T, Pack: true}, lengths...)
			order := newDice(3, n).perm(n)
			want := firstFit(lengths, order, T)
			p := s.pack(&s.train, order)
			if p.slots() != len(want) {
				t.Fatalf("%d sequences, T %d: %d slots, first-fit makes %d", n, T, p.slots(), len(want))
			}
			for k := range want {
				if got := p.members[p.starts[k]:p.starts[k+1]]; !slices.Equal(got, want[k]) {
					t.Errorf("%d sequences, T %d: slot %d has %v, expected %v", n, T, k, got, want[k])
				}
			}
		}
	}
}

// checkSlot sees that a slot is sequences of the set, whole, each from position 0, and padding behind them. It counts the sequences.
func checkSlot(t *testing.T, s *Set, x Slot, seen map[int32]int) (sequences int) {
	t.Helper()
	T := s.opt.Tokens
	if len(x.IDs) != T || len(x.Pos) != T || len(x.Seq) != T || len(x.Loss) != T {
		t.Fatalf("a slot of %d, %d, %d, %d tokens", len(x.IDs), len(x.Pos), len(x.Seq), len(x.Loss))
	}
	i := 0
	for ; i < T && x.Seq[i] >= 0; sequences++ {
		which := x.IDs[i] / 1000
		seen[which]++
		for pos, w := range s.train.at(int(which)) {
			if i >= T || x.IDs[i] != token(w) || int(x.Pos[i]) != pos || int(x.Seq[i]) != sequences || x.Loss[i] != (pos > 0) {
				t.Fatalf("sequence %d, token %d: not as it was, or not whole", which, pos)
			}
			i++
		}
	}
	for ; i < T; i++ {
		if x.IDs[i] != 0 || x.Pos[i] != 0 || x.Seq[i] != -1 || x.Loss[i] {
			t.Fatalf("padding at %d is %d %d %d %v", i, x.IDs[i], x.Pos[i], x.Seq[i], x.Loss[i])
		}
	}
	return sequences
}

// Every epoch has every sequence once, in another order; where a run goes on, slots are what they would have been.
func TestRun(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 5))
	for _, pack := range []bool{true, false} {
		for _, n := range []int{1, 2, 3, 50, 211} {
			lengths := randomLengths(r, n, 40)
			opt := Options{Tokens: 40, Pack: pack, Seed: 7}
			s := made(opt, lengths...)
			var run []Slot
			var orders [][]int32
			for epoch := range 3 {
				seen, first := map[int32]int{}, len(run)
				var order []int32
				for k := range s.Slots(epoch) {
					x := s.Slot(len(run))
					if e, i := s.Place(len(run)); e != epoch || i != k {
						t.Fatalf("slot %d is slot %d of epoch %d, expected %d of %d", len(run), i, e, k, epoch)
					}
					if got := checkSlot(t, s, x, seen); got < 1 || !pack && got != 1 {
						t.Errorf("a slot has %d sequences", got)
					}
					order = append(order, x.IDs[0])
					run = append(run, x)
				}
				for i := range n {
					if seen[int32(i)] != 1 {
						t.Errorf("epoch %d: sequence %d is there %d times", epoch, i, seen[int32(i)])
					}
				}
				if !pack && len(run)-first != n {
					t.Errorf("%d slots for %d sequences", len(run)-first, n)
				}
				orders = append(orders, order)
			}
			if n >= 50 && (slices.Equal(orders[0], orders[1]) || slices.Equal(orders[1], orders[2])) {
				t.Error("two epochs have one order")
			}
			for _, i := range []int{len(run) - 1, 0, len(run) / 2, len(run) / 3} {
				if x := made(opt, lengths...).Slot(i); !reflect.DeepEqual(x, run[i]) {
					t.Errorf("slot %d of a run that goes on there is another", i)
				}
				if !reflect.DeepEqual(s.Slot(i), run[i]) {
					t.Errorf("slot %d is another when it is asked for again", i)
				}
			}
			opt.Seed++
			if x := made(opt, lengths...); n >= 50 && (reflect.DeepEqual(x.Slot(0), run[0]) || x.Hash() == s.Hash()) {
				t.Error("another seed has the same order or hash")
			}
			if p := s.Padding(); checkSlot(t, s, p, map[int32]int{}) != 0 {
				t.Error("a slot of padding has sequences")
			}
		}
	}
}

// Several goroutines may ask for slots, in any order.
func TestSlotsAtOnce(t *testing.T) {
	lengths := randomLengths(rand.New(rand.NewPCG(6, 7)), 60, 30)
	opt := Options{Tokens: 30, Pack: true, Seed: 1}
	s, alone := made(opt, lengths...), made(opt, lengths...)
	var crew sync.WaitGroup
	for w := range 4 {
		want := make([]Slot, 20)
		for i := range want {
			want[i] = alone.Slot((w*13 + i*7) % 90)
		}
		crew.Go(func() {
			for i := range want {
				if !reflect.DeepEqual(s.Slot((w*13+i*7)%90), want[i]) {
					t.Errorf("slot %d is another one", (w*13+i*7)%90)
				}
			}
		})
	}
	crew.Wait()
}

// The order is part of what a checkpoint relies on: it stays as it is, whatever else changes. These numbers are of PCG-DXSM as
// math/rand/v2 documents it, and the high half of the product.
func TestOrderStays(t *testing.T) {
	for _, c := range []struct {
		seed  uint64
		epoch int
		want  string
	}{{1, 0, "[7 6 1 3 2 4 8 9 0 5]"}, {1, 1, "[2 5 8 3 4 1 7 6 0 9]"}, {2, 0, "[4 2 9 5 8 0 1 3 7 6]"}} {
		if got := fmt.Sprint(newDice(c.seed, c.epoch).perm(10)); got != c.want {
			t.Errorf("seed %d, epoch %d: %s, expected %s", c.seed, c.epoch, got, c.want)
		}
	}
	var starts []int32
	s := made(Options{Tokens: 16, Pack: true, Seed: 3}, 5, 9, 16, 2, 7, 7, 3, 12, 4, 4)
	for i := range s.Slots(0) + s.Slots(1) {
		starts = append(starts, s.Slot(i).IDs[0]/1000)
	}
	if got := fmt.Sprint(starts); got != "[5 0 7 1 2 7 1 8 2 0]" {
		t.Errorf("slots begin with sequences %s, expected %s", got, "[5 0 7 1 2 7 1 8 2 0]")
	}
	if got := s.Hash(); !strings.HasPrefix(got, "2624ee13258d8d02") {
		t.Errorf("the hash is %s", got)
	}
}

// Every order is as likely as every other.
func TestPermIsFair(t *testing.T) {
	count := map[string]int{}
	const n = 6000
	for i := range n {
		count[fmt.Sprint(newDice(9, i).perm(3))]++
	}
	for order, c := range count {
		if c < n/6-150 || c > n/6+150 { // five times the spread of 29
			t.Errorf("%s comes %d times of %d", order, c, n)
		}
	}
	if len(count) != 6 {
		t.Errorf("%d orders of three", len(count))
	}
}
