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
	u.hold(s, r, r+1)
	n := s.Format.Type.RowBytes(s.whole.Cols)
	at := (r - u.from) * n
	return u.buf[at : at+n : at+n]
}

// hold unpacks the tensor's rows [first, end), at most GroupRows, so that they are there together. They are of one group, unless their matrix begins within
// one: an expert's, or a part of a tensor.
func (u *unpacked) hold(s *Slot, first, end int) {
	if u.of == s.Stored && first >= u.from && end <= u.to {
		return
	}
	if from := first / GroupRows * GroupRows; end <= from+GroupRows {
		first = from
	}
	u.of = nil // until it is whole
	u.from, u.to = s.Stored.Whole(first, min(first+GroupRows, s.whole.TensorRows()))
	n := s.Format.Type.RowBytes(s.whole.Cols)
	if size := (u.to - u.from) * n; cap(u.buf) < size {
		u.buf = make([]byte, size)
	}
	s.Stored.Unpack(u.buf[:(u.to-u.from)*n], u.from, u.to)
	u.of = s.Stored
}
