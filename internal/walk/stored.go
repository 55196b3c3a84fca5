package walk

// Stored is the rows of a matrix that lie compressed in a file, in chunks of whole rows.
type Stored interface {
	// Whole widens the rows [from, to) to whole chunks.
	Whole(from, to int) (int, int)

	// Unpack writes the file form of rows [from, to), whole chunks, to dst. Damage ends it with a panic: the walk
	// returns it as it does a fault of a mapping.
	Unpack(dst []byte, from, to int)
}

// GroupRows is how many rows are unpacked together: kernels go through so many side by side.
const GroupRows = 64

// unpacked is a group of rows as it was unpacked last. The workers have one each.
type unpacked struct {
	of       Stored
	from, to int
	buf      []byte
}

// row is the file form of the tensor's row r, valid until a row of another group or slot is asked for.
func (u *unpacked) row(s *Slot, r int) []byte {
	n := s.Format.Type.RowBytes(s.whole.Cols)
	if u.of != s.Stored || r < u.from || r >= u.to {
		u.of = nil // until it is whole
		first := r / GroupRows * GroupRows
		u.from, u.to = s.Stored.Whole(first, min(first+GroupRows, s.whole.TensorRows()))
		if size := (u.to - u.from) * n; cap(u.buf) < size {
			u.buf = make([]byte, size)
		}
		s.Stored.Unpack(u.buf[:(u.to-u.from)*n], u.from, u.to)
		u.of = s.Stored
	}
	at := (r - u.from) * n
	return u.buf[at : at+n : at+n]
}
