// Package kv keeps what attention remembers: keys and values of every position, in pages that grow with use.
//
// A page holds one block of 64 positions, aligned to absolute position, of the KV heads of one layer that a member has: for each head the block of
// keys, then the block of values, in the layout of the cache's format (kernel.KVFormat). Pages lie outside the Go heap, those of a home
// in slabs of its own; memory is resident only where it was written.
package kv

import (
	"fmt"
	"unsafe"

	"ck/internal/kernel"
)

// SlabBytes is how much address space is taken at a time; pages of a slab become resident as they are written.
const SlabBytes = 64 << 20

// Layer is the shape of one layer's state.
type Layer struct {
	Heads  int // KV heads
	Format *kernel.KVFormat
}

// pageBytes is the size of one page of the layer.
func (l Layer) pageBytes() int { return l.Heads * (l.Format.KBytes() + l.Format.VBytes()) }

// Alloc gives n bytes of zeroed memory outside the Go heap, near a home, aligned to 64 bytes.
type Alloc func(home, n int) ([]byte, error)

// Cache holds the pages of all sequences.
type Cache struct {
	layers []Layer
	places int // of a member
	alloc  Alloc
	slabs  [][]byte // by home, those of a member together: what is left of the newest one
	free   map[kind][][]byte
	seqs   []*Sequence
	limit  int64 // bytes of pages at most; 0: no limit
	used   int64 // bytes of pages in use
}

// kind is what pages are alike in: the home, and bytes.
type kind struct{ home, n int }

// Sequence is one text: for each layer and head the addresses of its blocks.
type Sequence struct {
	len   int
	reach int                  // how long it may become; 0: nobody said
	pages [][][]byte           // [layer][block, member]
	k, v  [][][]unsafe.Pointer // [layer][head][block]
}

// ErrFull reports that the cache's memory budget is used up.
type ErrFull struct{ LimitBytes, NeedBytes int64 }

func (e *ErrFull) Error() string {
	return fmt.Sprintf("the KV cache needs %.1f MiB, the memory budget leaves %.1f MiB; use a shorter context or --kv q8_0",
		float64(e.NeedBytes)/(1<<20), float64(e.LimitBytes)/(1<<20))
}

// New makes an empty cache of which so many members have equal shares of the heads, and their places chunks of positions in turn; limit bounds the bytes of
// its pages (0: no limit).
func New(layers []Layer, members, places int, alloc Alloc, limit int64) *Cache {
	return &Cache{layers: layers, places: places, alloc: alloc, limit: limit, free: map[kind][][]byte{}, slabs: make([][]byte, members*places)}
}

// members is the number of members.
func (c *Cache) members() int { return len(c.slabs) / c.places }

// home is where a block of a member lies.
func (c *Cache) home(member, block int) int {
	return member*c.places + block*kernel.BlockKeys/kernel.ChunkKeys%c.places
}

// NewSeq starts a sequence and returns its number.
func (c *Cache) NewSeq() int {
	s := &Sequence{pages: make([][][]byte, len(c.layers)), k: make([][][]unsafe.Pointer, len(c.layers)), v: make([][][]unsafe.Pointer, len(c.layers))}
	for i, l := range c.layers {
		s.k[i], s.v[i] = make([][]unsafe.Pointer, l.Heads), make([][]unsafe.Pointer, l.Heads)
	}
	for i, old := range c.seqs {
		if old == nil {
			c.seqs[i] = s
			return i
		}
	}
	c.seqs = append(c.seqs, s)
	return len(c.seqs) - 1
}

// Len is the number of positions that the sequence holds.
func (c *Cache) Len(seq int) int { return c.seqs[seq].len }

// Reach is how long the sequence may become, as Expect was told; 0: nobody said.
func (c *Cache) Reach(seq int) int { return c.seqs[seq].reach }

// Expect says how long a sequence may become.
func (c *Cache) Expect(seq, n int) { c.seqs[seq].reach = n }

// Reserve makes room for positions [0, n) of a sequence and sets its length to n: the walk then writes the new positions.
func (c *Cache) Reserve(seq, n int) error {
	s := c.seqs[seq]
	for i, l := range c.layers {
		members := c.members()
		heads := l.Heads / members
		for len(s.pages[i])/members*kernel.BlockKeys < n || len(s.pages[i])%members != 0 { // a block may be there for some members
			member := len(s.pages[i]) % members
			p, err := c.page(c.home(member, len(s.pages[i])/members), l.pageBytes()/members)
			if err != nil {
				return err
			}
			s.pages[i] = append(s.pages[i], p)
			kb, vb := l.Format.KBytes(), l.Format.VBytes()
			for h := range heads {
				at := h * (kb + vb)
				s.k[i][member*heads+h] = append(s.k[i][member*heads+h], unsafe.Pointer(&p[at]))
				s.v[i][member*heads+h] = append(s.v[i][member*heads+h], unsafe.Pointer(&p[at+kb]))
			}
		}
	}
	s.len = n
	return nil
}

// page takes a page of n bytes from those given back, or from a slab.
func (c *Cache) page(home, n int) ([]byte, error) {
	if c.limit > 0 && c.used+int64(n) > c.limit {
		return nil, &ErrFull{c.limit, c.used + int64(n)}
	}
	c.used += int64(n)
	if f := c.free[kind{home, n}]; len(f) > 0 {
		c.free[kind{home, n}] = f[:len(f)-1]
		return f[len(f)-1], nil
	}
	slab := &c.slabs[home]
	if len(*slab) < n {
		b, err := c.alloc(home, max(n, SlabBytes))
		if err != nil {
			c.used -= int64(n)
			return nil, err
		}
		*slab = b
	}
	p := (*slab)[:n:n]
	*slab = (*slab)[n:]
	return p, nil
}

// Truncate forgets the positions from n on.
func (c *Cache) Truncate(seq, n int) {
	s := c.seqs[seq]
	n = min(max(n, 0), s.len)
	keep, members := (n+kernel.BlockKeys-1)/kernel.BlockKeys, c.members()
	for i, l := range c.layers {
		for len(s.pages[i]) > keep*members {
			last := len(s.pages[i]) - 1
			p := s.pages[i][last]
			s.pages[i] = s.pages[i][:last]
			like := kind{c.home(last%members, last/members), len(p)}
			c.free[like] = append(c.free[like], p)
			c.used -= int64(len(p))
		}
		for h := range l.Heads {
			if blocks := min(keep, len(s.k[i][h])); blocks < len(s.k[i][h]) {
				s.k[i][h], s.v[i][h] = s.k[i][h][:blocks], s.v[i][h][:blocks]
			}
		}
	}
	if s.len = n; n == 0 {
		s.reach = 0
	}
}

// Drop ends a sequence and gives its pages back.
func (c *Cache) Drop(seq int) {
	c.Truncate(seq, 0)
	c.seqs[seq] = nil
}

// Keys and Values are the addresses of a head's blocks, block b holding positions 64b to 64b+63.
func (c *Cache) Keys(seq, layer, head int) []unsafe.Pointer   { return c.seqs[seq].k[layer][head] }
func (c *Cache) Values(seq, layer, head int) []unsafe.Pointer { return c.seqs[seq].v[layer][head] }

// Layer is the shape of a layer's state.
func (c *Cache) Layer(i int) Layer { return c.layers[i] }

// UsedBytes is the size of all pages in use.
func (c *Cache) UsedBytes() int64 { return c.used }

// SetLimit bounds the bytes of pages from now on (0: no limit). Pages that are in use stay.
func (c *Cache) SetLimit(bytes int64) { c.limit = bytes }

// BytesPerPosition is what one more position costs, in bytes.
func (c *Cache) BytesPerPosition() (n int64) {
	for _, b := range c.LayerBytes() {
		n += b
	}
	return n
}

// LayerBytes is what one more position costs in each layer, in bytes.
func (c *Cache) LayerBytes() []int64 {
	n := make([]int64, len(c.layers))
	for i, l := range c.layers {
		n[i] = int64(l.pageBytes() / kernel.BlockKeys)
	}
	return n
}
