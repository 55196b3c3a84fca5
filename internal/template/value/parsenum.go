package value

import (
	"math/big"
	"strconv"
	"strings"

	"ck/internal/template/pystr"
)

// ParseInt reads an integer as Python's int(text, base) does: white space around, a sign, a prefix that fits the
// base, single underscores between digits.
func ParseInt(s string, base int) (Value, bool) {
	s = strings.TrimFunc(s, pystr.IsSpace)
	neg := strings.HasPrefix(s, "-")
	if neg || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	if b := pystr.BasePrefix(s); b != 0 && (base == b || base == 0) {
		base, s = b, strings.TrimPrefix(s[2:], "_")
	}
	if base == 0 {
		base = 10
		if strings.HasPrefix(s, "0") && strings.Trim(s, "0_") != "" {
			return nil, false
		}
	}
	if base < 2 || base > 36 || strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
		return nil, false
	}
	s = pystr.DecimalDigits(strings.ReplaceAll(s, "_", ""))
	if s == "" || s[0] == '-' || s[0] == '+' || len(s) > maxIntDigits {
		return nil, false
	}
	b, ok := new(big.Int).SetString(s, base)
	if !ok {
		return nil, false
	}
	if neg {
		b.Neg(b)
	}
	return NormBig(b), true
}

// ParseFloat reads a float as Python's float(text) does.
func ParseFloat(s string) (float64, bool) {
	s = pystr.DecimalDigits(strings.TrimFunc(s, pystr.IsSpace))
	for i := range s {
		digit := func(k int) bool { return k >= 0 && k < len(s) && s[k] >= '0' && s[k] <= '9' }
		if s[i] == '_' && !(digit(i-1) && digit(i+1)) || s[i]|0x20 == 'x' {
			return 0, false // Go alone reads hexadecimal floats
		}
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if e, ok := err.(*strconv.NumError); ok && e.Err == strconv.ErrSyntax {
		return 0, false
	}
	return f, true
}

// IntArg is an argument that must be an integer; integers beyond int are cut to its range.
func (r *Run) IntArg(v Value) int {
	switch n, _ := Number(v); n := n.(type) {
	case int:
		return n
	case *big.Int:
		const most = int(^uint(0) >> 1)
		return n.Sign() * most
	}
	r.Need(v)
	r.TypeError("'%s' object cannot be interpreted as an integer", TypeName(v))
	return 0
}

// StrArg is an argument that must be a string.
func (r *Run) StrArg(v Value) string {
	s, ok := r.Text(v)
	if !ok {
		r.Need(v)
		r.TypeError("must be str, not %s", TypeName(v))
	}
	return s
}
