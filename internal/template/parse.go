// Package template renders the Jinja chat templates that models carry: text, outputs, control structures, macros, with the values,
// operators, methods and filters of Python as jinja2 shows them to templates. It follows jinja2 3.1.6 as Hugging Face
// transformers sets it up (immutable sandbox, trim_blocks, lstrip_blocks, loop controls, the tag "generation", and the functions
// raise_exception, strftime_now, tojson), and it never trusts a template: steps, depth, output, memory and time are limited.
//
// Templates that include, import or extend others are refused, and so is the tag "autoescape". Beyond jinja2 there is the filter
// from_json, which some templates ask for. Known differences: the kind of the error of a few misuses; x ** y of floats may
// differ in the last digit; a slice of a constant that has no items is an error (jinja2 makes it undefined while compiling).
package template

import (
	"slices"
	"strings"
)

// Template is a parsed template. It is immutable and may be rendered by many goroutines at once.
type Template struct {
	name   string
	source string
	body   []stmt
	blocks map[string]*blockStmt
}

// Source is the text that Parse got.
func (t *Template) Source() string { return t.source }

// Parse parses a template. name appears in errors. Errors are of type *Error, kind "TemplateSyntaxError" or
// "TemplateAssertionError" (unknown filter or test).
func Parse(name, source string) (t *Template, err error) {
	if len(source) > maxSource {
		return nil, &Error{Template: name, Line: 1, Kind: "LimitError", Msg: "the template is longer than 1 MiB"}
	}
	p := &parser{lex: newLexer(source), blocks: map[string]*blockStmt{}}
	defer catch(name, func() int { return p.cur.line }, &err)
	p.advance()
	body := p.bodyUntil()
	if len(p.unknown) > 0 {
		panic(p.unknown[0])
	}
	return &Template{name: name, source: source, body: body, blocks: p.blocks}, nil
}

type parser struct {
	lex       *lexer
	cur, peek token
	peeked    bool
	depth     int         // nested parse functions
	loops     int         // loops around the current statement, within the macro
	soft      int         // conditions around the current node: there an unknown filter fails only when it is reached
	macros    []*macroDef // around the current node
	unknown   []*Error    // unknown filters and tests outside of conditions
	blocks    map[string]*blockStmt
	tags      []string // open tags, for messages
}

func (p *parser) fail(format string, args ...any) {
	failAt(p.cur.line, "TemplateSyntaxError", format, args...)
}

func (p *parser) advance() token {
	t := p.cur
	if p.peeked {
		p.cur, p.peeked = p.peek, false
	} else {
		p.cur = p.lex.next()
	}
	return t
}

func (p *parser) look() token {
	if !p.peeked {
		p.peek, p.peeked = p.lex.next(), true
	}
	return p.peek
}

// push and pop bound the recursion of the parser.
func (p *parser) push() {
	p.depth++
	if p.depth > maxNest {
		failAt(p.cur.line, "LimitError", "more than %d nested tags, brackets or operators", maxNest)
	}
}

func (p *parser) pop() { p.depth-- }

func (p *parser) isOp(op string) bool     { return p.cur.kind == tOp && p.cur.text == op }
func (p *parser) isName(name string) bool { return p.cur.kind == tName && p.cur.text == name }

func (p *parser) skipOp(op string) bool {
	if p.isOp(op) {
		p.advance()
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.advance()
		return true
	}
	return false
}

func (p *parser) expectOp(op string) {
	if !p.skipOp(op) {
		p.fail("expected '%s', got %v", op, p.cur)
	}
}

func (p *parser) expect(k kind) token {
	if p.cur.kind != k {
		p.fail("expected %v, got %v", token{kind: k, text: "a name"}, p.cur)
	}
	return p.advance()
}

// bodyUntil parses statements up to a tag named in ends and stops with that name as the current token; with no ends it parses
// the whole template.
func (p *parser) bodyUntil(ends ...string) (body []stmt) {
	p.push()
	defer p.pop()
	for {
		switch p.cur.kind {
		case tEOF:
			if len(ends) > 0 {
				p.fail("unexpected end of template; the tag '%s' needs %s", p.tags[len(p.tags)-1], tagList(ends))
			}
			return body
		case tData:
			body = append(body, &dataStmt{p.advance().text})
		case tVarBegin:
			line := p.advance().line
			body = append(body, &outputStmt{p.tuple(true), line})
			p.expect(tVarEnd)
		case tBlockBegin:
			p.advance()
			if p.cur.kind == tName && slices.Contains(ends, p.cur.text) {
				return body
			}
			body = append(body, p.statement())
			p.expect(tBlockEnd)
		default:
			p.fail("unexpected %v", p.cur)
		}
	}
}

func tagList(names []string) string {
	s := ""
	for i, n := range names {
		if i > 0 {
			s += " or "
		}
		s += "'" + n + "'"
	}
	return s
}

// block parses the rest of an opening tag and its body, up to one of ends, whose name it skips and returns.
func (p *parser) block(ends ...string) (body []stmt, end string) {
	p.skipOp(":")
	p.expect(tBlockEnd)
	body = p.bodyUntil(ends...)
	return body, p.advance().text
}

func (p *parser) statement() stmt {
	if p.cur.kind != tName {
		p.fail("expected the name of a tag, got %v", p.cur)
	}
	t := p.advance()
	p.tags = append(p.tags, t.text)
	defer func() { p.tags = p.tags[:len(p.tags)-1] }()
	switch t.text {
	case "if":
		return p.ifTag()
	case "for":
		return p.forTag(t.line)
	case "set":
		return p.setTag(t.line)
	case "macro":
		d := &macroDef{line: t.line, name: p.expect(tName).text}
		p.signature(d)
		p.macroBody(d, "endmacro")
		return &macroStmt{d}
	case "call":
		return p.callTag(t.line)
	case "filter":
		f := p.filters(&bodyExpr{}, true)
		p.fillBody(f, "endfilter")
		return &outputStmt{f, t.line}
	case "with":
		return p.withTag()
	case "block":
		return p.blockTag()
	case "generation":
		body, _ := p.block("endgeneration")
		return &scopeStmt{body}
	case "print":
		o := &outputStmt{line: t.line}
		parts := []expr{p.expression(true)}
		for p.skipOp(",") {
			parts = append(parts, p.expression(true))
		}
		o.x = &concatExpr{parts, t.line}
		return o
	case "break", "continue":
		if p.loops == 0 {
			p.fail("'%s' outside of a loop", t.text)
		}
		if t.text == "break" {
			return flowStmt(flowBreak)
		}
		return flowStmt(flowContinue)
	case "include", "import", "from", "extends":
		failAt(t.line, "TemplateSyntaxError", "the tag '%s' needs other templates; a chat template must stand alone", t.text)
	case "autoescape":
		failAt(t.line, "TemplateSyntaxError", "the tag 'autoescape' is not supported; chat templates are not HTML")
	}
	msg := ""
	if len(p.tags) > 1 {
		msg = "; the innermost open tag is '" + p.tags[len(p.tags)-2] + "'"
	}
	failAt(t.line, "TemplateSyntaxError", "unknown tag '%s'%s", t.text, msg)
	return nil
}

func (p *parser) ifTag() stmt {
	s := &ifStmt{}
	p.soft++
	defer func() { p.soft-- }()
	for {
		s.conds = append(s.conds, p.tuple(false))
		body, end := p.block("elif", "else", "endif")
		s.bodies = append(s.bodies, body)
		switch end {
		case "elif":
			continue
		case "else":
			s.other, _ = p.block("endif")
		}
		return s
	}
}

func (p *parser) forTag(line int) stmt {
	s := &forStmt{line: line, target: p.targets("in", false)}
	if s.target == nameTarget("loop") {
		p.fail("can't assign to the special loop variable")
	}
	if !p.skipName("in") {
		p.fail("expected 'in', got %v", p.cur)
	}
	s.iter = p.tuple(false, "recursive")
	if p.skipName("if") {
		s.test = p.expression(true)
	}
	s.recursive = p.skipName("recursive")
	p.loops++
	body, end := p.block("endfor", "else")
	p.loops--
	s.body = body
	if end == "else" {
		s.other, _ = p.block("endfor")
	}
	return s
}

func (p *parser) setTag(line int) stmt {
	s := &setStmt{line: line, target: p.targets("", true)}
	if p.skipOp("=") {
		s.x = p.tuple(true)
		return s
	}
	s.x = p.filters(&bodyExpr{}, false)
	p.fillBody(s.x, "endset")
	return s
}

// fillBody parses the body of a block whose filters f were parsed before it.
func (p *parser) fillBody(f expr, end string) {
	loops := p.loops
	p.loops = 0 // loop controls cannot leave an expression
	defer func() { p.loops = loops }()
	for {
		if b, ok := f.(*bodyExpr); ok {
			b.body, _ = p.block(end)
			return
		}
		f = f.(*filterExpr).x
	}
}

func (p *parser) signature(d *macroDef) {
	p.expectOp("(")
	for !p.isOp(")") {
		if len(d.params) > 0 {
			p.expectOp(",")
		}
		name := p.expect(tName).text
		if slices.Contains(d.params, name) {
			p.fail("duplicate argument '%s' in the definition of a macro", name)
		}
		d.params = append(d.params, name)
		if len(d.params) > maxArgs {
			p.fail("more than %d parameters", maxArgs)
		}
		if p.skipOp("=") {
			d.defaults = append(d.defaults, p.inMacro(d, func() expr { return p.expression(true) }))
		} else if len(d.defaults) > 0 {
			p.fail("non-default argument follows default argument")
		}
	}
	p.expectOp(")")
}

func (p *parser) inMacro(d *macroDef, parse func() expr) expr {
	p.macros = append(p.macros, d)
	defer func() { p.macros = p.macros[:len(p.macros)-1] }()
	return parse()
}

func (p *parser) macroBody(d *macroDef, end string) {
	loops := p.loops
	p.loops = 0
	p.inMacro(d, func() expr {
		d.body, _ = p.block(end)
		return nil
	})
	p.loops = loops
}

func (p *parser) callTag(line int) stmt {
	d := &macroDef{line: line, name: "caller"}
	if p.isOp("(") {
		p.signature(d)
	}
	call, ok := p.expression(true).(*callExpr)
	if !ok {
		failAt(line, "TemplateSyntaxError", "expected a call in the tag 'call'")
	}
	p.macroBody(d, "endcall")
	return &callStmt{d, call}
}

func (p *parser) withTag() stmt {
	s := &withStmt{}
	for p.cur.kind != tBlockEnd {
		if len(s.targets) > 0 {
			p.expectOp(",")
		}
		s.targets = append(s.targets, p.targets("", false))
		p.expectOp("=")
		s.values = append(s.values, p.expression(true))
	}
	s.body, _ = p.block("endwith")
	return s
}

func (p *parser) blockTag() stmt {
	s := &blockStmt{name: p.expect(tName).text}
	s.scoped = p.skipName("scoped")
	p.skipName("required")
	if p.blocks[s.name] != nil {
		p.fail("block '%s' defined twice", s.name)
	}
	p.blocks[s.name] = s
	loops := p.loops
	p.loops = 0
	s.body, _ = p.block("endblock")
	p.loops = loops
	p.skipName(s.name)
	return s
}

// targets parses what stands before "=" or "in": names, tuples of them and, for set, attributes of namespaces.
func (p *parser) targets(end string, namespace bool) target {
	line := p.cur.line
	var items []target
	tuple := false
	for len(items) == 0 || p.skipOp(",") {
		if len(items) > 0 {
			tuple = true
			if p.isOp("=") || p.isOp(")") || p.cur.kind == tBlockEnd || end != "" && p.isName(end) {
				break
			}
		}
		items = append(items, p.oneTarget(namespace))
	}
	if tuple {
		return &tupleTarget{items, line}
	}
	return items[0]
}

func (p *parser) oneTarget(namespace bool) target {
	p.push()
	defer p.pop()
	if p.skipOp("(") {
		t := p.targets("", namespace)
		p.expectOp(")")
		return t
	}
	t := p.expect(tName)
	switch t.text {
	case "true", "True", "false", "False", "none", "None":
		p.fail("can't assign to '%s'", t.text)
	}
	if namespace && p.skipOp(".") {
		return &attrTarget{t.text, p.expect(tName).text, t.line}
	}
	return nameTarget(t.text)
}

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

func (p *parser) sum() expr     { return p.binary(p.concat, "+", "-") }
func (p *parser) product() expr { return p.binary(p.power, "*", "/", "//", "%") }
func (p *parser) power() expr   { return p.binary(func() expr { return p.unary(true) }, "**") }

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
			x = &indexExpr{x, p.subscript(line), line}
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

func (p *parser) subscript(line int) expr {
	var items []expr
	for !p.skipOp("]") {
		if len(items) > 0 {
			p.expectOp(",")
		}
		items = append(items, p.sliceOrExpr())
	}
	if len(items) == 1 {
		return items[0]
	}
	for _, x := range items {
		if _, ok := x.(*sliceExpr); ok {
			failAt(line, "TemplateSyntaxError", "a slice must stand alone in its brackets")
		}
	}
	return &listExpr{items, true, line}
}

func (p *parser) sliceOrExpr() expr {
	part := func() expr {
		if p.isOp(":") || p.isOp("]") || p.isOp(",") {
			return nil
		}
		return p.expression(true)
	}
	s := &sliceExpr{start: part()}
	if !p.skipOp(":") {
		if s.start == nil {
			p.fail("unexpected %v", p.cur)
		}
		return s.start
	}
	s.stop = part()
	if p.skipOp(":") {
		s.step = part()
	}
	return s
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
		f.f = filterTable[f.name]
		p.checkKnown(f.f, "filter", f.name, f.line)
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
func (p *parser) checkKnown(f *builtin, what, name string, line int) {
	if f == nil && p.soft == 0 {
		p.unknown = append(p.unknown, &Error{Line: line, Kind: "TemplateAssertionError", Msg: "no " + what + " named '" + name + "'"})
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
	t.f = testTable[t.name]
	p.checkKnown(t.f, "test", t.name, t.line)
	if negated {
		return &notExpr{t}
	}
	return t
}
