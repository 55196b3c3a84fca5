package demotext

import "slices"

// Parameters of Dedup: signatures of hashes in bands. Two texts whose shingles agree to a share s meet in a band with probability 1-(1-s^rows)^bands: at 0.8
// in all but 2e-6 of the cases, at 0.5 in 64 %, where the estimate then parts them (Broder 1997; Leskovec, Rajaraman, Ullman 2014, section 3.4).
const (
	bands        = 16
	rows         = 4
	hashes       = bands * rows
	shingleWords = 3
)

// Dedup finds texts that are nearly one that it has seen, by MinHash of the shingles of 3 words. It holds about 0.8 KB per text. The zero value is not
// ready: use NewDedup.
type Dedup struct {
	Least   float64 // the estimated share of common shingles from which texts are near
	seen    [][hashes]uint32
	buckets [bands]map[uint64][]int32
}

// NewDedup makes a Dedup that calls texts near from a share least on.
func NewDedup(least float64) *Dedup {
	d := &Dedup{Least: least}
	for i := range d.buckets {
		d.buckets[i] = map[uint64][]int32{}
	}
	return d
}

// Add takes a text in, unless one of those before is near: then it says which (by the number of its taking in) and how near.
func (d *Dedup) Add(text string) (near int, share float64, dup bool) {
	sig := signature(text)
	var keys [bands]uint64
	tried := map[int32]bool{}
	for b := range bands {
		h := uint64(b)
		for _, v := range sig[b*rows : (b+1)*rows] {
			h = mix(h ^ uint64(v))
		}
		keys[b] = h
		for _, i := range d.buckets[b][h] {
			if tried[i] {
				continue
			}
			tried[i] = true
			if s := agree(&sig, &d.seen[i]); s >= d.Least {
				return int(i), s, true
			}
		}
	}
	for b, h := range keys {
		d.buckets[b][h] = append(d.buckets[b][h], int32(len(d.seen)))
	}
	d.seen = append(d.seen, sig)
	return 0, 0, false
}

// agree is the share of equal hashes, which estimates the share of common shingles.
func agree(a, b *[hashes]uint32) float64 {
	n := 0
	for i := range a {
		if a[i] == b[i] {
			n++
		}
	}
	return float64(n) / hashes
}

// signature is the least value of each hash function over the shingles of a text.
func signature(text string) (sig [hashes]uint32) {
	for i := range sig {
		sig[i] = ^uint32(0)
	}
	for _, h := range shingles(text, shingleWords) {
		for i := range sig {
			sig[i] = min(sig[i], uint32(mix(h+uint64(i)<<32)>>32))
		}
	}
	return sig
}

// shingles are the hashes of the runs of n words of a text, each once, in order of their values; a shorter text is one run.
func shingles(text string, n int) []uint64 {
	words := wordsOf(text)
	if len(words) == 0 {
		return nil
	}
	each := make([]uint64, len(words))
	for i, w := range words {
		each[i] = hashText(w)
	}
	var out []uint64
	for i := 0; i == 0 || i+n <= len(each); i++ {
		h := uint64(0)
		for _, w := range each[i:min(i+n, len(each))] {
			h = mix(h ^ w)
		}
		out = append(out, h)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
