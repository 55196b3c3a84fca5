package value

import (
	"math"
	"math/big"
	"strconv"
)

// Dict is a dict, in order of insertion.
type Dict struct {
	Keys, Vals []Value
	index      map[any]int // from dictKey to position; nil while the dict is small
}

// NewDict makes an empty dict.
func NewDict() *Dict { return &Dict{} }

const smallDict = 8

// Set sets key's value and returns d. Keys given from Go are strings; numbers, None and tuples appear in templates
// only.
func (d *Dict) Set(key string, v Value) *Dict {
	d.SetKey(key, key, v)
	return d
}

// Get is the value of a key.
func (d *Dict) Get(key string) (Value, bool) {
	if i := d.Find(key); i >= 0 {
		return d.Vals[i], true
	}
	return nil, false
}

// Len is the number of entries.
func (d *Dict) Len() int { return len(d.Keys) }

// SetKey sets the entry of which k is the dictKey.
func (d *Dict) SetKey(k any, key, v Value) {
	if i := d.Find(k); i >= 0 {
		d.Vals[i] = v
		return
	}
	d.Keys, d.Vals = append(d.Keys, key), append(d.Vals, v)
	if d.index != nil {
		d.index[k] = len(d.Keys) - 1
	} else if len(d.Keys) > smallDict {
		d.index = make(map[any]int, 2*len(d.Keys))
		for i, key := range d.Keys {
			k, _ := dictKey(key)
			d.index[k] = i
		}
	}
}

// Find is the position of the entry with dictKey k, or -1.
func (d *Dict) Find(k any) int {
	if d.index != nil {
		if i, ok := d.index[k]; ok {
			return i
		}
		return -1
	}
	for i, key := range d.Keys {
		if s, ok := key.(string); ok {
			if s == k {
				return i
			}
		} else if other, _ := dictKey(key); other == k {
			return i
		}
	}
	return -1
}

type (
	noneKey  struct{}
	bigKey   string
	tupleKey string
)

// dictKey is a Go map key that is equal for values that are equal as Python's dict keys (1, 1.0 and True are). ok is
// false for values that cannot be keys, and for tuples beyond a sane size.
func dictKey(v Value) (k any, ok bool) {
	switch v := v.(type) {
	case string, int:
		return v, true
	case Markup:
		return string(v), true
	case *Mixed:
		return v.S, true
	case nil:
		return noneKey{}, true
	case bool:
		return BoolInt(v), true
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<62 {
			return int(v), true
		}
		return v, true
	case *big.Int:
		return bigKey(string(v.Bytes()) + string(rune('0'+v.Sign()))), true
	case *List:
		if !v.Tuple {
			return nil, false
		}
		b, ok := tupleBytes(nil, v, 0)
		return tupleKey(b), ok
	case *Dict, *View:
		return nil, false
	case *Undefined:
		return (*Undefined)(nil), true
	}
	return v, true
}

func tupleBytes(b []byte, l *List, depth int) ([]byte, bool) {
	if depth > maxValueNest || len(b) > 1<<16 {
		return b, false
	}
	b = append(b, '(')
	for _, item := range l.Items {
		if t, ok := item.(*List); ok && t.Tuple {
			if b, ok = tupleBytes(b, t, depth+1); !ok {
				return b, false
			}
			continue
		}
		k, ok := dictKey(item)
		s, kind := "", "o"
		switch k := k.(type) {
		case string:
			s, kind = k, "s"
		case int:
			s, kind = strconv.Itoa(k), "i"
		case float64:
			s, kind = strconv.FormatFloat(k, 'g', -1, 64), "f"
		case bigKey:
			s, kind = string(k), "b"
		case noneKey:
		default: // identity cannot be written down
			return b, false
		}
		b = append(append(strconv.AppendInt(append(b, kind...), int64(len(s)), 10), ':'), s...)
		if !ok || len(b) > 1<<16 {
			return b, false
		}
	}
	return append(b, ')'), true
}

// key is the dictKey of v, the work of hashing it counted.
func (r *Run) key(v Value) (any, bool) {
	if s, ok := PlainText(v); ok {
		r.Scan(len(s))
	}
	return dictKey(v)
}

// Hashable is the dictKey of v, or an error.
func (r *Run) Hashable(v Value) any {
	k, ok := r.key(v)
	if !ok {
		r.TypeError("unhashable type: '%s'", TypeName(v))
	}
	return k
}

// Put sets d[key] = v.
func (r *Run) Put(d *Dict, key, v Value) {
	r.Charge(costEntry)
	d.SetKey(r.Hashable(key), key, v)
}
