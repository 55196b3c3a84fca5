package value

import (
	"cmp"
	"math"
	"math/big"
	"math/bits"
	"strings"
)

// NormBig is b as an int where it fits, else as *big.Int.
func NormBig(b *big.Int) Value {
	if b.IsInt64() && int64(int(b.Int64())) == b.Int64() {
		return int(b.Int64())
	}
	return b
}

// IsNumber reports whether v is a number or a bool, which Python counts among them.
func IsNumber(v Value) bool {
	switch v.(type) {
	case bool, int, float64, *big.Int:
		return true
	}
	return false
}

// Number is v with bools as ints: int, *big.Int or float64; ok is false for anything else.
func Number(v Value) (n Value, ok bool) {
	if b, isBool := v.(bool); isBool {
		return BoolInt(b), true
	}
	return v, IsNumber(v)
}

// ToBig is an int or *big.Int as *big.Int.
func ToBig(n Value) *big.Int {
	if i, ok := n.(int); ok {
		return big.NewInt(int64(i))
	}
	return n.(*big.Int)
}

// ToFloat is an int, *big.Int or float64 as float64, infinite where it is beyond it.
func ToFloat(n Value) float64 {
	switch n := n.(type) {
	case int:
		return float64(n)
	case float64:
		return n
	}
	f, _ := new(big.Float).SetInt(n.(*big.Int)).Float64()
	return f
}

// Float is v as float64 for arithmetic; integers beyond the range of floats are an error.
func (r *Run) Float(v Value) float64 {
	n, ok := Number(v)
	if !ok {
		r.Need(v)
		r.TypeError("must be real number, not %s", TypeName(v))
	}
	f := ToFloat(n)
	if _, ok := n.(*big.Int); ok && math.IsInf(f, 0) {
		r.Fail("OverflowError", "int too large to convert to float")
	}
	return f
}

// exactInt is a number that is an integer in the range of int.
func exactInt(v Value) (int, bool) {
	switch n, _ := Number(v); n := n.(type) {
	case int:
		return n, true
	case float64:
		if n == math.Trunc(n) && math.Abs(n) < 1<<53 {
			return int(n), true
		}
	}
	return 0, false
}

// compareNumbers compares two numbers exactly, also integers with floats; the result is -1, 0, 1 or unordered.
func compareNumbers(a, b Value) int {
	a, _ = Number(a)
	b, _ = Number(b)
	x, xInt := a.(int)
	y, yInt := b.(int)
	if xInt && yInt {
		return cmp.Compare(x, y)
	}
	f, fIs := a.(float64)
	g, gIs := b.(float64)
	switch {
	case fIs && math.IsNaN(f) || gIs && math.IsNaN(g):
		return unordered
	case fIs && gIs:
		return big.NewFloat(f).Cmp(big.NewFloat(g))
	case fIs:
		return big.NewFloat(f).Cmp(new(big.Float).SetInt(ToBig(b)))
	case gIs:
		return new(big.Float).SetInt(ToBig(a)).Cmp(big.NewFloat(g))
	}
	return ToBig(a).Cmp(ToBig(b))
}

// Binary is "a op b" for the arithmetic operators.
func (r *Run) Binary(op string, a, b Value) Value {
	if s, isText := PlainText(a); isText && op == "%" {
		return r.Percent(a, s, b)
	}
	r.Need(a)
	r.Need(b)
	x, okX := Number(a)
	y, okY := Number(b)
	if okX && okY {
		return r.Arith(op, x, y)
	}
	switch op {
	case "+":
		if v, ok := r.add(a, b); ok {
			return v
		}
	case "*":
		if v, ok := r.repeatValue(a, y, okY); ok {
			return v
		}
		if v, ok := r.repeatValue(b, x, okX); ok {
			return v
		}
	}
	if _, ok := PlainText(a); ok && op == "+" {
		r.TypeError("can only concatenate str (not \"%s\") to str", TypeName(b))
	}
	if op == "**" {
		op = "** or pow()"
	}
	r.TypeError("unsupported operand type(s) for %s: '%s' and '%s'", op, TypeName(a), TypeName(b))
	return nil
}

// add joins texts and sequences.
func (r *Run) add(a, b Value) (Value, bool) {
	if s, ok := PlainText(a); ok {
		t, ok := PlainText(b)
		if !ok {
			return nil, false
		}
		ma, mb := IsMarkup(a), IsMarkup(b)
		if ma != mb { // one is markup: the other is escaped
			if ma {
				b = LikeText(b, r.Escape(t))
			} else {
				a = LikeText(a, r.Escape(s))
			}
		}
		var x Blend
		x.Add(a)
		x.Add(b)
		r.ChargeN(1, x.B.Len())
		return x.Value(ma || mb), true
	}
	x, okX := a.(*List)
	y, okY := b.(*List)
	if !okX || !okY || x.Tuple != y.Tuple {
		return nil, false
	}
	r.ChargeN(len(x.Items)+len(y.Items), CostItem)
	items := make([]Value, 0, len(x.Items)+len(y.Items))
	r.Charge(CostObject)
	return &List{Items: append(append(items, x.Items...), y.Items...), Tuple: x.Tuple}, true
}

// repeatValue is v * n for texts and sequences.
func (r *Run) repeatValue(v, n Value, isNum bool) (Value, bool) {
	s, isText := PlainText(v)
	l, isList := v.(*List)
	if !isText && !isList {
		return nil, false
	}
	count, ok := n.(int)
	if _, isBig := n.(*big.Int); isBig {
		r.Fail("OverflowError", "cannot fit 'int' into an index-sized integer")
	}
	if !isNum || !ok {
		r.TypeError("can't multiply sequence by non-int of type '%s'", TypeName(n))
	}
	if isText {
		return LikeText(v, r.Repeat(s, count)), true
	}
	count = max(count, 0)
	if len(l.Items) > 0 {
		r.ChargeN(count, len(l.Items)*CostItem)
	}
	items := make([]Value, 0, len(l.Items)*count)
	if len(l.Items) > 0 {
		for range count {
			items = append(items, l.Items...)
		}
	}
	r.Charge(CostObject)
	return &List{Items: items, Tuple: l.Tuple}, true
}

// Repeat is s repeated n times; none for negative n.
func (r *Run) Repeat(s string, n int) string {
	if n <= 0 || s == "" {
		return ""
	}
	r.ChargeN(n, len(s))
	return strings.Repeat(s, n)
}

// Arith computes with int, *big.Int and float64.
func (r *Run) Arith(op string, a, b Value) Value {
	x, okX := a.(int)
	y, okY := b.(int)
	if okX && okY {
		if v, ok := arithInt(op, x, y); ok {
			return v
		}
	}
	_, fX := a.(float64)
	_, fY := b.(float64)
	if fX || fY {
		return r.arithFloat(op, r.Float(a), r.Float(b))
	}
	return r.arithBig(op, ToBig(a), ToBig(b))
}

// arithInt is "x op y" where it is an int; ok is false where it is not, or an error.
func arithInt(op string, x, y int) (v int, ok bool) {
	switch op {
	case "+":
		s := x + y
		return s, (s > x) == (y > 0)
	case "-":
		d := x - y
		return d, (d < x) == (y > 0)
	case "*":
		hi, lo := bits.Mul(absUint(x), absUint(y))
		return x * y, hi == 0 && lo <= math.MaxInt
	case "//", "%":
		if y == 0 || x == math.MinInt && y == -1 {
			return 0, false
		}
		q, m := x/y, x%y
		if m != 0 && (m < 0) != (y < 0) {
			q, m = q-1, m+y
		}
		if op == "//" {
			return q, true
		}
		return m, true
	}
	return 0, false
}

func absUint(x int) uint {
	if x < 0 {
		return -uint(x)
	}
	return uint(x)
}

func (r *Run) arithFloat(op string, x, y float64) Value {
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "**":
		return r.powerFloat(x, y)
	}
	if y == 0 {
		r.Fail("ZeroDivisionError", "float division by zero")
	}
	if op == "/" {
		return x / y
	}
	m := math.Mod(x, y)
	if m != 0 && (m < 0) != (y < 0) {
		m += y
	} else if m == 0 {
		m = math.Copysign(0, y)
	}
	if op == "%" {
		return m
	}
	q := (x - m) / y
	f := math.Floor(q)
	if q-f > 0.5 {
		f++
	}
	if q == 0 {
		f = math.Copysign(0, x/y)
	}
	return f
}

func (r *Run) powerFloat(x, y float64) float64 {
	if x == 0 && y < 0 {
		r.Fail("ZeroDivisionError", "0.0 cannot be raised to a negative power")
	}
	if x < 0 && y != math.Trunc(y) && !math.IsInf(x, 0) && !math.IsNaN(y) {
		r.Fail("ValueError", "a negative number to a fractional power is complex")
	}
	z := math.Pow(x, y)
	if math.IsInf(z, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		r.Fail("OverflowError", "result too large")
	}
	return z
}

func (r *Run) arithBig(op string, x, y *big.Int) Value {
	z := new(big.Int)
	r.Scan(x.BitLen() + y.BitLen())
	switch op {
	case "+":
		z.Add(x, y)
	case "-":
		z.Sub(x, y)
	case "*":
		r.checkBits(x.BitLen() + y.BitLen())
		r.Step((x.BitLen() >> 8) * (y.BitLen() >> 8) >> 3)
		z.Mul(x, y)
	case "**":
		return r.power(x, y)
	default:
		if y.Sign() == 0 {
			if op == "/" {
				r.Fail("ZeroDivisionError", "division by zero")
			}
			r.Fail("ZeroDivisionError", "integer division or modulo by zero")
		}
		if op == "/" {
			f, _ := new(big.Rat).SetFrac(x, y).Float64()
			if math.IsInf(f, 0) {
				r.Fail("OverflowError", "integer division result too large for a float")
			}
			return f
		}
		m := new(big.Int)
		z.QuoRem(x, y, m)
		if m.Sign() != 0 && m.Sign() != y.Sign() {
			z.Sub(z, big.NewInt(1))
			m.Add(m, y)
		}
		if op == "%" {
			z = m
		}
	}
	r.checkBits(z.BitLen())
	r.Charge(z.BitLen() / 8)
	return NormBig(z)
}

// checkBits refuses integers of more than maxIntBits.
func (r *Run) checkBits(n int) {
	if n > MaxIntBits {
		r.Fail("LimitError", "integer of more than %d bits", MaxIntBits)
	}
}

func (r *Run) power(x, y *big.Int) Value {
	if y.Sign() < 0 {
		return r.powerFloat(r.Float(NormBig(x)), r.Float(NormBig(y)))
	}
	if x.BitLen() <= 1 { // 0, 1 or -1
		switch {
		case y.Sign() == 0:
			return 1
		case x.Sign() < 0 && y.Bit(0) == 0:
			return 1
		}
		return NormBig(x)
	}
	if !y.IsInt64() || y.Int64() > MaxIntBits {
		r.checkBits(MaxIntBits + 1)
	}
	r.checkBits((x.BitLen() - 1) * int(y.Int64()))
	r.Charge(MaxIntBits / 8)
	r.Step(200)
	z := new(big.Int).Exp(x, y, nil)
	r.checkBits(z.BitLen())
	return NormBig(z)
}

// Unary is -v or +v.
func (r *Run) Unary(op byte, v Value) Value {
	n, ok := Number(v)
	r.Need(v)
	if !ok {
		r.TypeError("bad operand type for unary %c: '%s'", op, TypeName(v))
	}
	if op == '+' {
		return n
	}
	if f, ok := n.(float64); ok {
		return -f
	}
	return r.Arith("-", 0, n)
}

// Truncate is int(f).
func (r *Run) Truncate(f float64) Value {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		r.Fail("OverflowError", "cannot convert float %s to integer", floatRepr(f))
	}
	b, _ := big.NewFloat(f).Int(nil)
	return NormBig(b)
}
