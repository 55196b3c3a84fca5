package builtin

import (
	"math"
	"math/big"

	"ck/internal/template/value"
)

func numberFilters() {
	define(filterTable, "int default? base?", func(r *Env, v value.Value, a []value.Value) value.Value {
		return r.toInt(v, opt(a[0], 0), r.IntArg(opt(a[1], 10)))
	})
	define(filterTable, "float default?", filterFloat)
	define(filterTable, "abs", filterAbs)
	define(filterTable, "round precision? method?", filterRound)
	define(filterTable, "filesizeformat binary?", filterFileSize)
}

// filterFloat is float(v), or the default.
func filterFloat(r *Env, v value.Value, a []value.Value) value.Value {
	r.Need(v)
	if s, ok := r.Text(v); ok {
		if f, ok := value.ParseFloat(s); ok {
			return f
		}
	} else if value.IsNumber(v) {
		return r.Float(v)
	}
	return opt(a[0], 0.0)
}

// filterAbs is abs(v).
func filterAbs(r *Env, v value.Value, _ []value.Value) value.Value {
	n, ok := value.Number(v)
	if !ok {
		r.TypeError("bad operand type for abs(): '%s'", value.TypeName(v))
	}
	if f, ok := n.(float64); ok {
		return math.Abs(f)
	}
	return r.Absolute(n)
}

// toInt is the filter int.
func (r *Env) toInt(v, def value.Value, base int) value.Value {
	r.Need(v)
	if s, ok := r.Text(v); ok {
		r.Scan(len(s))
		if n, ok := value.ParseInt(s, base); ok {
			return n
		}
		f, ok := value.ParseFloat(s)
		if !ok {
			return def
		}
		v = f
	}
	switch n, _ := value.Number(v); n := n.(type) {
	case int, *big.Int:
		return n
	case float64:
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return def
		}
		return r.Truncate(n)
	}
	return def
}

// filterRound is the filter round.
func filterRound(r *Env, v value.Value, a []value.Value) value.Value {
	precision := r.IntArg(opt(a[0], 0))
	method := r.Str(opt(a[1], "common"))
	n, ok := value.Number(v)
	r.Need(v)
	if !ok {
		r.TypeError("type %s doesn't define __round__ method", value.TypeName(v))
	}
	switch method {
	case "ceil", "floor":
		scale := r.Arith("**", 10, precision)
		f := r.Float(r.Arith("*", n, scale))
		if method == "ceil" {
			f = math.Ceil(f)
		} else {
			f = math.Floor(f)
		}
		return r.Arith("/", r.Truncate(f), scale)
	case "common":
		return r.round(n, precision)
	}
	r.Fail("FilterArgumentError", "method must be common, ceil or floor")
	return nil
}

// round is round(n, precision) of Python: to even on a tie, exactly.
func (r *Env) round(n value.Value, precision int) value.Value {
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
		out, _ := value.ParseFloat(value.FormatFloat(f, 'f', precision))
		return out
	}
	r.Step(200)
	r.Charge(value.MaxIntBits / 8)
	if isFloat {
		q := roundUnits(new(big.Rat).SetFloat64(f), -precision)
		return math.Copysign(value.ToFloat(value.NormBig(q)), f)
	}
	return value.NormBig(roundUnits(new(big.Rat).SetInt(value.ToBig(n)), -precision))
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
func filterFileSize(r *Env, v value.Value, a []value.Value) value.Value {
	r.ReadNumber()
	f, ok := 0.0, true
	if s, isText := r.Text(v); isText {
		f, ok = value.ParseFloat(s)
	} else {
		f = r.Float(v)
	}
	if !ok {
		r.Fail("ValueError", "could not convert string to float")
	}
	base, names := 1000.0, []string{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}
	if r.Truth(opt(a[0], false)) {
		base, names = 1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}
	}
	if f == 1 {
		return "1 Byte"
	}
	if f < base {
		return r.Str(r.toInt(f, 0, 10)) + " Bytes"
	}
	for i, name := range names {
		unit := math.Pow(base, float64(i+2))
		if f < unit || i == len(names)-1 {
			return value.FormatFloat(base*f/unit, 'f', 1) + " " + name
		}
	}
	return ""
}
