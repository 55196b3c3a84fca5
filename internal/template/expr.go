package template

import (
	"slices"
	"strings"
)

// tuple parses an expression, or several between commas as a tuple. cond allows "if" at the top; extra is a name that ends it.
func (p *parser) tuple(cond bool, extra ...string) expr {
	line := p.cur.line
	x := p.expression(cond)
	if !p.isOp(",") {
		return x
	}
	items := []expr{x}
	for p.skipOp(",") {
		if p.cur.kind == tVarEnd || p.cur.kind == tBlockEnd || p.isOp(")") || len(extra) > 0 && p.isName(extra[0]) {
			break
		}
		items = append(items, p.expression(cond))
	}
	return &listExpr{items, true, line}
}

func (p *parser) expression(cond bool) expr {
	p.push()
	defer p.pop()
	line, known := p.cur.line, len(p.unknown)
	x := p.or()
	for cond && p.skipName("if") {
		p.unknown = p.unknown[:known] // x turned out to be conditional code
		p.soft++
		c := &condExpr{cond: p.or(), yes: x, line: line}
		if p.skipName("else") {
			c.no = p.expression(true)
		}
		p.soft--
		x = c
	}
	return x
}

func (p *parser) or() expr {
	x := p.and()
	for p.skipName("or") {
		x = &orExpr{x, p.and()}
	}
	return x
}

func (p *parser) and() expr {
	x := p.not()
	for p.skipName("and") {
		x = &andExpr{x, p.not()}
	}
	return x
}

func (p *parser) not() expr {
	if p.skipName("not") {
		p.push()
		defer p.pop()
		return &notExpr{p.not()}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	line := p.cur.line
	x := p.sum()
	var c *compareExpr
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
			c = &compareExpr{first: x, line: line}
		}
		c.ops, c.args = append(c.ops, op), append(c.args, p.sum())
	}
}

// binary parses a left-associative chain of the operators ops over the operands that next parses.
func (p *parser) binary(next func() expr, ops ...string) expr {
	x := next()
	for p.cur.kind == tOp && slices.Contains(ops, p.cur.text) {
		t := p.advance()
		x = &binExpr{t.text, x, next(), t.line}
	}
	return x
}

func (p *parser) sum() expr { return p.binary(p.concat, "+", "-") }

func (p *parser) product() expr { return p.binary(p.power, "*", "/", "//", "%") }

func (p *parser) power() expr { return p.binary(func() expr { return p.unary(true) }, "**") }

func (p *parser) concat() expr {
	line := p.cur.line
	x := p.product()
	if !p.isOp("~") {
		return x
	}
	c := &concatExpr{[]expr{x}, line}
	for p.skipOp("~") {
		c.parts = append(c.parts, p.product())
	}
	return c
}

func (p *parser) unary(filters bool) expr {
	var x expr
	if p.isOp("-") || p.isOp("+") {
		t := p.advance()
		p.push()
		x = &unaryExpr{t.text[0], p.unary(false), t.line}
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

func (p *parser) primary() expr {
	t := p.cur
	switch t.kind {
	case tName:
		p.advance()
		switch t.text {
		case "true", "True":
			return &constExpr{true}
		case "false", "False":
			return &constExpr{false}
		case "none", "None":
			return &constExpr{nil}
		}
		for _, m := range p.macros {
			switch t.text {
			case "varargs":
				m.varargs = true
			case "kwargs":
				m.kwargs = true
			case "caller":
				m.caller = true
			}
		}
		return &nameExpr{t.text, t.line}
	case tString:
		parts := []string{p.advance().text}
		for p.cur.kind == tString {
			parts = append(parts, p.advance().text)
		}
		return &constExpr{strings.Join(parts, "")}
	case tNumber:
		p.advance()
		return &constExpr{t.num}
	case tOp:
		switch t.text {
		case "(":
			p.advance()
			if p.skipOp(")") {
				return &listExpr{nil, true, t.line}
			}
			x := p.tuple(true)
			p.expectOp(")")
			return x
		case "[":
			p.advance()
			return &listExpr{p.items("]"), false, t.line}
		case "{":
			return p.dict()
		}
	}
	p.fail("unexpected %v", t)
	return nil
}

// items parses expressions between commas up to the closing bracket.
func (p *parser) items(end string) (items []expr) {
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

func (p *parser) dict() expr {
	d := &dictExpr{line: p.advance().line}
	for !p.skipOp("}") {
		if len(d.keys) > 0 {
			p.expectOp(",")
			if p.skipOp("}") {
				break
			}
		}
		d.keys = append(d.keys, p.expression(true))
		p.expectOp(":")
		d.vals = append(d.vals, p.expression(true))
	}
	return d
}

func (p *parser) postfix(x expr) expr {
	for p.cur.kind == tOp {
		switch p.cur.text {
		case ".":
			line := p.advance().line
			if p.cur.kind == tNumber {
				x = &indexExpr{x, &constExpr{p.advance().num}, line}
			} else {
				x = &attrExpr{x, p.expect(tName).text, line}
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

func (p *parser) call(fn expr) expr {
	line := p.cur.line
	return &callExpr{fn, p.callArgs(), line}
}

// subscript parses what stands in brackets behind x: a slice, or one key, of which several between commas make a tuple.
func (p *parser) subscript(x expr, line int) expr {
	var items []expr
	var slice *sliceExpr
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
		slice.x, slice.line = x, line
		return slice
	case len(items) == 1:
		return &indexExpr{x, items[0], line}
	}
	return &indexExpr{x, &listExpr{items, true, line}, line}
}

// sliceOrExpr parses one item of a subscript; a slice is yet without what it cuts.
func (p *parser) sliceOrExpr() (expr, *sliceExpr) {
	part := func() expr {
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
	s := &sliceExpr{start: start, stop: part()}
	if p.skipOp(":") {
		s.step = part()
	}
	return nil, s
}

func (p *parser) callArgs() (a callArgs) {
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
			bad(a.star != nil || a.dstar != nil)
			a.star = p.expression(true)
		case p.skipOp("**"):
			bad(a.dstar != nil)
			a.dstar = p.expression(true)
		case p.cur.kind == tName && p.look().kind == tOp && p.look().text == "=":
			bad(a.dstar != nil || slices.Contains(a.names, p.cur.text))
			a.names = append(a.names, p.advance().text)
			bad(len(a.names) > maxArgs)
			p.advance()
			a.kw = append(a.kw, p.expression(true))
		default:
			bad(a.star != nil || a.dstar != nil || len(a.names) > 0)
			a.pos = append(a.pos, p.expression(true))
		}
	}
	return a
}

func (p *parser) filterExpr(x expr) expr {
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
func (p *parser) filters(x expr, bare bool) expr {
	for bare || p.skipOp("|") {
		bare = false
		f := &filterExpr{x: x, line: p.cur.line, name: p.dottedName()}
		if p.isOp("(") {
			f.args = p.callArgs()
		}
		f.def = p.names.filter(f.name)
		p.checkKnown(f.def, "filter", f.name, f.line)
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

// checkKnown notes unknown filters and tests, which Parse refuses; but in conditional code they fail only when they are reached.
func (p *parser) checkKnown(def any, what, name string, line int) {
	if def == nil && p.soft == 0 {
		p.unknown = append(p.unknown, &syntaxError{Line: line, Kind: "TemplateAssertionError", Msg: "no " + what + " named '" + name + "'"})
	}
}

func (p *parser) test(x expr) expr {
	t := &testExpr{x: x, line: p.advance().line}
	negated := p.skipName("not")
	t.name = p.dottedName()
	switch {
	case p.isOp("("):
		t.args = p.callArgs()
	case p.isName("else"), p.isName("or"), p.isName("and"):
	case p.isName("is"):
		p.fail("tests with 'is' cannot be chained")
	case p.cur.kind == tName, p.cur.kind == tString, p.cur.kind == tNumber, p.isOp("["), p.isOp("{"):
		t.args.pos = []expr{p.postfix(p.primary())}
	}
	t.def = p.names.test(t.name)
	p.checkKnown(t.def, "test", t.name, t.line)
	if negated {
		return &notExpr{t}
	}
	return t
}
