package template

import (
	"math"
	"math/big"
)

func numberFilters() {
	define(filterTable, "int default? base?", func(r *env, v Value, a []Value) Value {
		return r.toInt(v, opt(a[0], 0), r.intArg(opt(a[1], 10)))
	})
	define(filterTable, "float default?", filterFloat)
	define(filterTable, "abs", filterAbs)
	define(filterTable, "round precision? method?", filterRound)
	define(filterTable, "filesizeformat binary?", filterFileSize)
}

// filterFloat is float(v), or the default.
func filterFloat(r *env, v Value, a []Value) Value {
	r.use(v)
	if s, ok := r.text(v); ok {
		if f, ok := parseFloat(s); ok {
			return f
		}
	} else if isNumber(v) {
		return r.float(v)
	}
	return opt(a[0], 0.0)
}

// filterAbs is abs(v).
func filterAbs(r *env, v Value, _ []Value) Value {
	n, ok := number(v)
	if !ok {
		r.typeError("bad operand type for abs(): '%s'", typeName(v))
	}
	if f, ok := n.(float64); ok {
		return math.Abs(f)
	}
	return r.absolute(n)
}

// toInt is the filter int.
func (r *env) toInt(v, def Value, base int) Value {
	r.use(v)
	if s, ok := r.text(v); ok {
		r.scan(len(s))
		if n, ok := parseInt(s, base); ok {
			return n
		}
		f, ok := parseFloat(s)
		if !ok {
			return def
		}
		v = f
	}
	switch n, _ := number(v); n := n.(type) {
	case int, *big.Int:
		return n
	case float64:
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return def
		}
		return r.truncate(n)
	}
	return def
}

// filterRound is the filter round.
func filterRound(r *env, v Value, a []Value) Value {
	precision := r.intArg(opt(a[0], 0))
	method := r.str(opt(a[1], "common"))
	n, ok := number(v)
	r.use(v)
	if !ok {
		r.typeError("type %s doesn't define __round__ method", typeName(v))
	}
	switch method {
	case "ceil", "floor":
		scale := r.arith("**", 10, precision)
		f := r.float(r.arith("*", n, scale))
		if method == "ceil" {
			f = math.Ceil(f)
		} else {
			f = math.Floor(f)
		}
		return r.arith("/", r.truncate(f), scale)
	case "common":
		return r.round(n, precision)
	}
	r.fail("FilterArgumentError", "method must be common, ceil or floor")
	return nil
}

// round is round(n, precision) of Python: to even on a tie, exactly.
func (r *env) round(n Value, precision int) Value {
	f, isFloat := n.(float64)
	if isFloat && (math.IsNaN(f) || math.IsInf(f, 0) || precision > 330) || !isFloat && precision >= 0 {
		return n
	}
	if precision < -400 {
		if isFloat {
			return math.Copysign(0, f)
		}
		return 0
	}
	if isFloat && precision >= 0 {
		out, _ := parseFloat(formatFloat(f, 'f', precision))
		return out
	}
	r.step(200)
	r.charge(maxIntBits / 8)
	if isFloat {
		q := roundUnits(new(big.Rat).SetFloat64(f), -precision)
		return math.Copysign(toFloat(normBig(q)), f)
	}
	return normBig(roundUnits(new(big.Rat).SetInt(toBig(n)), -precision))
}

// roundUnits is x rounded to a multiple of 10**digits, to an even one on a tie.
func roundUnits(x *big.Rat, digits int) *big.Int {
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil)
	x.Quo(x, new(big.Rat).SetInt(unit))
	twice := new(big.Int).Mul(x.Num(), big.NewInt(2))
	q := new(big.Int).Div(twice.Add(twice, x.Denom()), new(big.Int).Mul(x.Denom(), big.NewInt(2))) // floor(x + 1/2)
	half := new(big.Rat).Sub(new(big.Rat).SetInt(q), x)
	if half.Cmp(big.NewRat(1, 2)) == 0 && q.Bit(0) == 1 {
		q.Sub(q, big.NewInt(1))
	}
	return q.Mul(q, unit)
}

// filterFileSize is a number of bytes in the largest unit that it fills.
func filterFileSize(r *env, v Value, a []Value) Value {
	r.useNumber()
	f, ok := 0.0, true
	if s, isText := r.text(v); isText {
		f, ok = parseFloat(s)
	} else {
		f = r.float(v)
	}
	if !ok {
		r.fail("ValueError", "could not convert string to float")
	}
	base, names := 1000.0, []string{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}
	if r.truth(opt(a[0], false)) {
		base, names = 1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}
	}
	if f == 1 {
		return "1 Byte"
	}
	if f < base {
		return r.str(r.toInt(f, 0, 10)) + " Bytes"
	}
	for i, name := range names {
		unit := math.Pow(base, float64(i+2))
		if f < unit || i == len(names)-1 {
			return formatFloat(base*f/unit, 'f', 1) + " " + name
		}
	}
	return ""
}
