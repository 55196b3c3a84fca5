package syntax

import (
	"slices"
	"strings"
)

// tuple parses an expression, or several between commas as a tuple. cond allows "if" at the top; extra is a name that
// ends it.
func (p *parser) tuple(cond bool, extra ...string) Expr {
	line := p.cur.line
	x := p.expression(cond)
	if !p.isOp(",") {
		return x
	}
	items := []Expr{x}
	for p.skipOp(",") {
		if p.cur.kind == tVarEnd || p.cur.kind == tBlockEnd || p.isOp(")") || len(extra) > 0 && p.isName(extra[0]) {
			break
		}
		items = append(items, p.expression(cond))
	}
	return &ListExpr{items, true, line}
}

func (p *parser) expression(cond bool) Expr {
	p.push()
	defer p.pop()
	line, known := p.cur.line, len(p.unknown)
	x := p.or()
	for cond && p.skipName("if") {
		p.unknown = p.unknown[:known] // x turned out to be conditional code
		p.soft++
		c := &CondExpr{Cond: p.or(), Yes: x, Line: line}
		if p.skipName("else") {
			c.No = p.expression(true)
		}
		p.soft--
		x = c
	}
	return x
}

func (p *parser) or() Expr {
	x := p.and()
	for p.skipName("or") {
		x = &OrExpr{x, p.and()}
	}
	return x
}

func (p *parser) and() Expr {
	x := p.not()
	for p.skipName("and") {
		x = &AndExpr{x, p.not()}
	}
	return x
}

func (p *parser) not() Expr {
	if p.skipName("not") {
		p.push()
		defer p.pop()
		return &NotExpr{p.not()}
	}
	return p.compare()
}

func (p *parser) compare() Expr {
	line := p.cur.line
	x := p.sum()
	var c *CompareExpr
	for {
		op := ""
		switch {
		case p.cur.kind == tOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, p.cur.text):
			op = p.advance().text
		case p.skipName("in"):
			op = "in"
		case p.isName("not") && p.look().kind == tName && p.look().text == "in":
			p.advance()
			p.advance()
			op = "not in"
		case c == nil:
			return x
		default:
			return c
		}
		if c == nil {
			c = &CompareExpr{First: x, Line: line}
		}
		c.Ops, c.Args = append(c.Ops, op), append(c.Args, p.sum())
	}
}

// binary parses a left-associative chain of the operators ops over the operands that next parses.
func (p *parser) binary(next func() Expr, ops ...string) Expr {
	x := next()
	for p.cur.kind == tOp && slices.Contains(ops, p.cur.text) {
		t := p.advance()
		x = &BinExpr{t.text, x, next(), t.line}
	}
	return x
}

func (p *parser) sum() Expr { return p.binary(p.concat, "+", "-") }

func (p *parser) product() Expr { return p.binary(p.power, "*", "/", "//", "%") }

func (p *parser) power() Expr { return p.binary(func() Expr { return p.unary(true) }, "**") }

func (p *parser) concat() Expr {
	line := p.cur.line
	x := p.product()
	if !p.isOp("~") {
		return x
	}
	c := &ConcatExpr{[]Expr{x}, line}
	for p.skipOp("~") {
		c.Parts = append(c.Parts, p.product())
	}
	return c
}

func (p *parser) unary(filters bool) Expr {
	var x Expr
	if p.isOp("-") || p.isOp("+") {
		t := p.advance()
		p.push()
		x = &UnaryExpr{t.text[0], p.unary(false), t.line}
		p.pop()
	} else {
		x = p.primary()
	}
	x = p.postfix(x)
	if filters {
		x = p.filterExpr(x)
	}
	return x
}

func (p *parser) primary() Expr {
	t := p.cur
	switch t.kind {
	case tName:
		p.advance()
		switch t.text {
		case "true", "True":
			return &ConstExpr{true}
		case "false", "False":
			return &ConstExpr{false}
		case "none", "None":
			return &ConstExpr{nil}
		}
		for _, m := range p.macros {
			switch t.text {
			case "varargs":
				m.Varargs = true
			case "kwargs":
				m.Kwargs = true
			case "caller":
				m.Caller = true
			}
		}
		return &NameExpr{t.text, t.line}
	case tString:
		parts := []string{p.advance().text}
		for p.cur.kind == tString {
			parts = append(parts, p.advance().text)
		}
		return &ConstExpr{strings.Join(parts, "")}
	case tNumber:
		p.advance()
		return &ConstExpr{t.num}
	case tOp:
		switch t.text {
		case "(":
			p.advance()
			if p.skipOp(")") {
				return &ListExpr{nil, true, t.line}
			}
			x := p.tuple(true)
			p.expectOp(")")
			return x
		case "[":
			p.advance()
			return &ListExpr{p.items("]"), false, t.line}
		case "{":
			return p.dict()
		}
	}
	p.fail("unexpected %v", t)
	return nil
}

// items parses expressions between commas up to the closing bracket.
func (p *parser) items(end string) (items []Expr) {
	for !p.skipOp(end) {
		if len(items) > 0 {
			p.expectOp(",")
			if p.skipOp(end) {
				break
			}
		}
		items = append(items, p.expression(true))
	}
	return items
}

func (p *parser) dict() Expr {
	d := &DictExpr{Line: p.advance().line}
	for !p.skipOp("}") {
		if len(d.Keys) > 0 {
			p.expectOp(",")
			if p.skipOp("}") {
				break
			}
		}
		d.Keys = append(d.Keys, p.expression(true))
		p.expectOp(":")
		d.Vals = append(d.Vals, p.expression(true))
	}
	return d
}

func (p *parser) postfix(x Expr) Expr {
	for p.cur.kind == tOp {
		switch p.cur.text {
		case ".":
			line := p.advance().line
			if p.cur.kind == tNumber {
				x = &IndexExpr{x, &ConstExpr{p.advance().num}, line}
			} else {
				x = &AttrExpr{x, p.expect(tName).text, line}
			}
		case "[":
			line := p.advance().line
			x = p.subscript(x, line)
		case "(":
			x = p.call(x)
		default:
			return x
		}
	}
	return x
}

func (p *parser) call(fn Expr) Expr {
	line := p.cur.line
	return &CallExpr{fn, p.callArgs(), line}
}

// subscript parses what stands in brackets behind x: a slice, or one key, of which several between commas make a
// tuple.
func (p *parser) subscript(x Expr, line int) Expr {
	var items []Expr
	var slice *SliceExpr
	for !p.skipOp("]") {
		if len(items) > 0 {
			p.expectOp(",")
		}
		item, s := p.sliceOrExpr()
		items = append(items, item)
		if s != nil {
			slice = s
		}
	}
	switch {
	case slice != nil && len(items) > 1:
		failAt(line, "TemplateSyntaxError", "a slice must stand alone in its brackets")
	case slice != nil:
		slice.X, slice.Line = x, line
		return slice
	case len(items) == 1:
		return &IndexExpr{x, items[0], line}
	}
	return &IndexExpr{x, &ListExpr{items, true, line}, line}
}

// sliceOrExpr parses one item of a subscript; a slice is yet without what it cuts.
func (p *parser) sliceOrExpr() (Expr, *SliceExpr) {
	part := func() Expr {
		if p.isOp(":") || p.isOp("]") || p.isOp(",") {
			return nil
		}
		return p.expression(true)
	}
	start := part()
	if !p.skipOp(":") {
		if start == nil {
			p.fail("unexpected %v", p.cur)
		}
		return start, nil
	}
	s := &SliceExpr{Start: start, Stop: part()}
	if p.skipOp(":") {
		s.Step = part()
	}
	return nil, s
}

func (p *parser) callArgs() (a CallArgs) {
	p.expectOp("(")
	bad := func(wrong bool) {
		if wrong {
			p.fail("invalid order of arguments in a call")
		}
	}
	for first := true; !p.skipOp(")"); first = false {
		if !first {
			p.expectOp(",")
			if p.skipOp(")") {
				break
			}
		}
		switch {
		case p.skipOp("*"):
			bad(a.Star != nil || a.Dstar != nil)
			a.Star = p.expression(true)
		case p.skipOp("**"):
			bad(a.Dstar != nil)
			a.Dstar = p.expression(true)
		case p.cur.kind == tName && p.look().kind == tOp && p.look().text == "=":
			bad(a.Dstar != nil || slices.Contains(a.Names, p.cur.text))
			a.Names = append(a.Names, p.advance().text)
			bad(len(a.Names) > maxArgs)
			p.advance()
			a.Kw = append(a.Kw, p.expression(true))
		default:
			bad(a.Star != nil || a.Dstar != nil || len(a.Names) > 0)
			a.Pos = append(a.Pos, p.expression(true))
		}
	}
	return a
}

func (p *parser) filterExpr(x Expr) Expr {
	for {
		switch {
		case p.isOp("|"):
			x = p.filters(x, false)
		case p.isName("is"):
			x = p.test(x)
		case p.isOp("("):
			x = p.call(x)
		default:
			return x
		}
	}
}

// filters parses a chain of filters over x; bare says that the first comes without "|".
func (p *parser) filters(x Expr, bare bool) Expr {
	for bare || p.skipOp("|") {
		bare = false
		f := &FilterExpr{X: x, Line: p.cur.line, Name: p.dottedName()}
		if p.isOp("(") {
			f.Args = p.callArgs()
		}
		f.Def = p.names.Filter(f.Name)
		p.checkKnown(f.Def, "filter", f.Name, f.Line)
		x = f
	}
	return x
}

func (p *parser) dottedName() string {
	name := p.expect(tName).text
	for p.skipOp(".") {
		name += "." + p.expect(tName).text
	}
	return name
}

// checkKnown notes unknown filters and tests, which Parse refuses; but in conditional code they fail only when they
// are reached.
func (p *parser) checkKnown(def any, what, name string, line int) {
	if def == nil && p.soft == 0 {
		msg := "no " + what + " named '" + name + "'"
		p.unknown = append(p.unknown, &Error{Line: line, Kind: "TemplateAssertionError", Msg: msg})
	}
}

func (p *parser) test(x Expr) Expr {
	t := &TestExpr{X: x, Line: p.advance().line}
	negated := p.skipName("not")
	t.Name = p.dottedName()
	switch {
	case p.isOp("("):
		t.Args = p.callArgs()
	case p.isName("else"), p.isName("or"), p.isName("and"):
	case p.isName("is"):
		p.fail("tests with 'is' cannot be chained")
	case p.cur.kind == tName, p.cur.kind == tString, p.cur.kind == tNumber, p.isOp("["), p.isOp("{"):
		t.Args.Pos = []Expr{p.postfix(p.primary())}
	}
	t.Def = p.names.Test(t.Name)
	p.checkKnown(t.Def, "test", t.Name, t.Line)
	if negated {
		return &NotExpr{t}
	}
	return t
}
