package template

import (
	"cmp"
	"math"
	"math/big"
	"math/bits"
	"strings"
)

// normBig is b as an int where it fits, else as *big.Int.
func normBig(b *big.Int) Value {
	if b.IsInt64() && int64(int(b.Int64())) == b.Int64() {
		return int(b.Int64())
	}
	return b
}

func isNumber(v Value) bool {
	switch v.(type) {
	case bool, int, float64, *big.Int:
		return true
	}
	return false
}

// number is v with bools as ints: int, *big.Int or float64; ok is false for anything else.
func number(v Value) (n Value, ok bool) {
	if b, isBool := v.(bool); isBool {
		return boolInt(b), true
	}
	return v, isNumber(v)
}

func toBig(n Value) *big.Int {
	if i, ok := n.(int); ok {
		return big.NewInt(int64(i))
	}
	return n.(*big.Int)
}

// toFloat is an int, *big.Int or float64 as float64, infinite where it is beyond it.
func toFloat(n Value) float64 {
	switch n := n.(type) {
	case int:
		return float64(n)
	case float64:
		return n
	}
	f, _ := new(big.Float).SetInt(n.(*big.Int)).Float64()
	return f
}

// float is v as float64 for arithmetic; integers beyond the range of floats are an error.
func (r *run) float(v Value) float64 {
	n, ok := number(v)
	if !ok {
		r.use(v)
		r.typeError("must be real number, not %s", typeName(v))
	}
	f := toFloat(n)
	if _, ok := n.(*big.Int); ok && math.IsInf(f, 0) {
		r.fail("OverflowError", "int too large to convert to float")
	}
	return f
}

// exactInt is a number that is an integer in the range of int.
func exactInt(v Value) (int, bool) {
	switch n, _ := number(v); n := n.(type) {
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
	a, _ = number(a)
	b, _ = number(b)
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
		return big.NewFloat(f).Cmp(new(big.Float).SetInt(toBig(b)))
	case gIs:
		return new(big.Float).SetInt(toBig(a)).Cmp(big.NewFloat(g))
	}
	return toBig(a).Cmp(toBig(b))
}

// binary is "a op b" for the arithmetic operators.
func (r *run) binary(op string, a, b Value) Value {
	if s, isText := plainText(a); isText && op == "%" {
		return r.percent(a, s, b)
	}
	r.use(a)
	r.use(b)
	x, okX := number(a)
	y, okY := number(b)
	if okX && okY {
		return r.arith(op, x, y)
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
	if _, ok := plainText(a); ok && op == "+" {
		r.typeError("can only concatenate str (not \"%s\") to str", typeName(b))
	}
	if op == "**" {
		op = "** or pow()"
	}
	r.typeError("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
	return nil
}

// add joins texts and sequences.
func (r *run) add(a, b Value) (Value, bool) {
	if s, ok := plainText(a); ok {
		t, ok := plainText(b)
		if !ok {
			return nil, false
		}
		ma, mb := isMarkup(a), isMarkup(b)
		if ma != mb { // one is markup: the other is escaped
			if ma {
				b = likeText(b, r.escape(t))
			} else {
				a = likeText(a, r.escape(s))
			}
		}
		var x blend
		x.add(a)
		x.add(b)
		r.chargeN(1, x.b.Len())
		return x.value(ma || mb), true
	}
	x, okX := a.(*List)
	y, okY := b.(*List)
	if !okX || !okY || x.tuple != y.tuple {
		return nil, false
	}
	r.chargeN(len(x.items)+len(y.items), costItem)
	items := make([]Value, 0, len(x.items)+len(y.items))
	r.charge(costObject)
	return &List{items: append(append(items, x.items...), y.items...), tuple: x.tuple}, true
}

// repeatValue is v * n for texts and sequences.
func (r *run) repeatValue(v, n Value, isNum bool) (Value, bool) {
	s, isText := plainText(v)
	l, isList := v.(*List)
	if !isText && !isList {
		return nil, false
	}
	count, ok := n.(int)
	if _, isBig := n.(*big.Int); isBig {
		r.fail("OverflowError", "cannot fit 'int' into an index-sized integer")
	}
	if !isNum || !ok {
		r.typeError("can't multiply sequence by non-int of type '%s'", typeName(n))
	}
	if isText {
		return likeText(v, r.repeat(s, count)), true
	}
	count = max(count, 0)
	if len(l.items) > 0 {
		r.chargeN(count, len(l.items)*costItem)
	}
	items := make([]Value, 0, len(l.items)*count)
	if len(l.items) > 0 {
		for range count {
			items = append(items, l.items...)
		}
	}
	r.charge(costObject)
	return &List{items: items, tuple: l.tuple}, true
}

// repeat is s repeated n times; none for negative n.
func (r *run) repeat(s string, n int) string {
	if n <= 0 || s == "" {
		return ""
	}
	r.chargeN(n, len(s))
	return strings.Repeat(s, n)
}

// arith computes with int, *big.Int and float64.
func (r *run) arith(op string, a, b Value) Value {
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
		return r.arithFloat(op, r.float(a), r.float(b))
	}
	return r.arithBig(op, toBig(a), toBig(b))
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

func (r *run) arithFloat(op string, x, y float64) Value {
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
		r.fail("ZeroDivisionError", "float division by zero")
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

func (r *run) powerFloat(x, y float64) float64 {
	if x == 0 && y < 0 {
		r.fail("ZeroDivisionError", "0.0 cannot be raised to a negative power")
	}
	if x < 0 && y != math.Trunc(y) && !math.IsInf(x, 0) && !math.IsNaN(y) {
		r.fail("ValueError", "a negative number to a fractional power is complex")
	}
	z := math.Pow(x, y)
	if math.IsInf(z, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		r.fail("OverflowError", "result too large")
	}
	return z
}

func (r *run) arithBig(op string, x, y *big.Int) Value {
	z := new(big.Int)
	r.scan(x.BitLen() + y.BitLen())
	switch op {
	case "+":
		z.Add(x, y)
	case "-":
		z.Sub(x, y)
	case "*":
		r.checkBits(x.BitLen() + y.BitLen())
		r.step((x.BitLen() >> 8) * (y.BitLen() >> 8) >> 3)
		z.Mul(x, y)
	case "**":
		return r.power(x, y)
	default:
		if y.Sign() == 0 {
			if op == "/" {
				r.fail("ZeroDivisionError", "division by zero")
			}
			r.fail("ZeroDivisionError", "integer division or modulo by zero")
		}
		if op == "/" {
			f, _ := new(big.Rat).SetFrac(x, y).Float64()
			if math.IsInf(f, 0) {
				r.fail("OverflowError", "integer division result too large for a float")
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
	r.charge(z.BitLen() / 8)
	return normBig(z)
}

// checkBits refuses integers of more than maxIntBits.
func (r *run) checkBits(n int) {
	if n > maxIntBits {
		r.fail("LimitError", "integer of more than %d bits", maxIntBits)
	}
}

func (r *run) power(x, y *big.Int) Value {
	if y.Sign() < 0 {
		return r.powerFloat(r.float(normBig(x)), r.float(normBig(y)))
	}
	if x.BitLen() <= 1 { // 0, 1 or -1
		switch {
		case y.Sign() == 0:
			return 1
		case x.Sign() < 0 && y.Bit(0) == 0:
			return 1
		}
		return normBig(x)
	}
	if !y.IsInt64() || y.Int64() > maxIntBits {
		r.checkBits(maxIntBits + 1)
	}
	r.checkBits((x.BitLen() - 1) * int(y.Int64()))
	r.charge(maxIntBits / 8)
	r.step(200)
	z := new(big.Int).Exp(x, y, nil)
	r.checkBits(z.BitLen())
	return normBig(z)
}

// unary is -v or +v.
func (r *run) unary(op byte, v Value) Value {
	n, ok := number(v)
	r.use(v)
	if !ok {
		r.typeError("bad operand type for unary %c: '%s'", op, typeName(v))
	}
	if op == '+' {
		return n
	}
	if f, ok := n.(float64); ok {
		return -f
	}
	return r.arith("-", 0, n)
}

// truncate is int(f).
func (r *run) truncate(f float64) Value {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		r.fail("OverflowError", "cannot convert float %s to integer", floatRepr(f))
	}
	b, _ := big.NewFloat(f).Int(nil)
	return normBig(b)
}
