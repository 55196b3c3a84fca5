package syntax

import (
	"fmt"
	"slices"
	"strings"
)

// Tree is a parsed template. It never changes.
type Tree struct {
	Body   []Stmt
	Blocks map[string]*BlockStmt // by name, wherever they stand
}

// Names gives the definitions of filters and tests by their names, nil for unknown ones. The tree keeps them, unseen.
type Names struct{ Filter, Test func(name string) any }

// Parse parses a template. Errors are of type *Error: of kind "TemplateSyntaxError", "TemplateAssertionError" (an
// unknown filter or test), "LimitError" (too long, too deeply nested), or "InternalError", which is a defect of this
// package.
func Parse(source string, names Names) (t *Tree, err error) {
	if len(source) > maxSource {
		return nil, &Error{Line: 1, Kind: "LimitError", Msg: "the template is longer than 1 MiB"}
	}
	p := &parser{lex: newLexer(source), names: names, blocks: map[string]*BlockStmt{}}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *Error:
			t, err = nil, e
		default: // a template from a stranger must not end the program
			t, err = nil, &Error{Line: p.cur.line, Kind: "InternalError", Msg: fmt.Sprint(e)}
		}
	}()
	p.advance()
	body := p.bodyUntil()
	if len(p.unknown) > 0 {
		return nil, p.unknown[0]
	}
	return &Tree{Body: body, Blocks: p.blocks}, nil
}

type parser struct {
	lex       *lexer
	cur, peek token
	peeked    bool
	depth     int         // nested parse functions
	loops     int         // loops around the current statement, within the macro
	soft      int         // conditions around the current node: there an unknown filter fails only when it is reached
	macros    []*MacroDef // around the current node
	unknown   []*Error    // unknown filters and tests outside of conditions
	names     Names
	blocks    map[string]*BlockStmt
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

// bodyUntil parses statements up to a tag named in ends and stops with that name as the current token; with no ends
// it parses the whole template.
func (p *parser) bodyUntil(ends ...string) (body []Stmt) {
	p.push()
	defer p.pop()
	for {
		switch p.cur.kind {
		case tEOF:
			if len(ends) > 0 {
				p.fail("unexpected end of template; the tag '%s' needs '%s'", p.tags[len(p.tags)-1], strings.Join(ends, "' or '"))
			}
			return body
		case tData:
			body = append(body, &DataStmt{p.advance().text})
		case tVarBegin:
			line := p.advance().line
			body = append(body, &OutputStmt{p.tuple(true), line})
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

// block parses the rest of an opening tag and its body, up to one of ends, whose name it skips and returns.
func (p *parser) block(ends ...string) (body []Stmt, end string) {
	p.skipOp(":")
	p.expect(tBlockEnd)
	body = p.bodyUntil(ends...)
	return body, p.advance().text
}

func (p *parser) statement() Stmt {
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
		d := &MacroDef{Line: t.line, Name: p.expect(tName).text}
		p.signature(d)
		p.macroBody(d, "endmacro")
		return &MacroStmt{d}
	case "call":
		return p.callTag(t.line)
	case "filter":
		f := p.filters(&BodyExpr{}, true)
		p.fillBody(f, "endfilter")
		return &OutputStmt{f, t.line}
	case "with":
		return p.withTag()
	case "block":
		return p.blockTag()
	case "generation":
		body, _ := p.block("endgeneration")
		return &ScopeStmt{body}
	case "print":
		o := &OutputStmt{Line: t.line}
		parts := []Expr{p.expression(true)}
		for p.skipOp(",") {
			parts = append(parts, p.expression(true))
		}
		o.X = &ConcatExpr{parts, t.line}
		return o
	case "break", "continue":
		if p.loops == 0 {
			p.fail("'%s' outside of a loop", t.text)
		}
		if t.text == "break" {
			return &BreakStmt{}
		}
		return &ContinueStmt{}
	}
	p.refuse(t)
	return nil
}

// refuse fails on a tag that templates may not have.
func (p *parser) refuse(t token) {
	switch t.text {
	case "include", "import", "from", "extends":
		failAt(t.line, "TemplateSyntaxError", "the tag '%s' needs other templates; a chat template must stand alone",
			t.text)
	case "autoescape":
		failAt(t.line, "TemplateSyntaxError", "the tag 'autoescape' is not supported; chat templates are not HTML")
	}
	msg := ""
	if len(p.tags) > 1 {
		msg = "; the innermost open tag is '" + p.tags[len(p.tags)-2] + "'"
	}
	failAt(t.line, "TemplateSyntaxError", "unknown tag '%s'%s", t.text, msg)
}

func (p *parser) ifTag() Stmt {
	s := &IfStmt{}
	p.soft++
	defer func() { p.soft-- }()
	for {
		s.Conds = append(s.Conds, p.tuple(false))
		body, end := p.block("elif", "else", "endif")
		s.Bodies = append(s.Bodies, body)
		switch end {
		case "elif":
			continue
		case "else":
			s.Other, _ = p.block("endif")
		}
		return s
	}
}

func (p *parser) forTag(line int) Stmt {
	s := &ForStmt{Line: line, Target: p.targets("in", false)}
	if s.Target == NameTarget("loop") {
		p.fail("can't assign to the special loop variable")
	}
	if !p.skipName("in") {
		p.fail("expected 'in', got %v", p.cur)
	}
	s.Iter = p.tuple(false, "recursive")
	if p.skipName("if") {
		s.Test = p.expression(true)
	}
	s.Recursive = p.skipName("recursive")
	p.loops++
	body, end := p.block("endfor", "else")
	p.loops--
	s.Body = body
	if end == "else" {
		s.Other, _ = p.block("endfor")
	}
	return s
}

func (p *parser) setTag(line int) Stmt {
	s := &SetStmt{Line: line, Target: p.targets("", true)}
	if p.skipOp("=") {
		s.X = p.tuple(true)
		return s
	}
	s.X = p.filters(&BodyExpr{}, false)
	p.fillBody(s.X, "endset")
	return s
}

// fillBody parses the body of a block whose filters f were parsed before it.
func (p *parser) fillBody(f Expr, end string) {
	loops := p.loops
	p.loops = 0 // loop controls cannot leave an expression
	defer func() { p.loops = loops }()
	for {
		if b, ok := f.(*BodyExpr); ok {
			b.Body, _ = p.block(end)
			return
		}
		f = f.(*FilterExpr).X
	}
}

func (p *parser) signature(d *MacroDef) {
	p.expectOp("(")
	for !p.isOp(")") {
		if len(d.Params) > 0 {
			p.expectOp(",")
		}
		name := p.expect(tName).text
		if slices.Contains(d.Params, name) {
			p.fail("duplicate argument '%s' in the definition of a macro", name)
		}
		d.Params = append(d.Params, name)
		if len(d.Params) > maxArgs {
			p.fail("more than %d parameters", maxArgs)
		}
		if p.skipOp("=") {
			d.Defaults = append(d.Defaults, p.inMacro(d, func() Expr { return p.expression(true) }))
		} else if len(d.Defaults) > 0 {
			p.fail("non-default argument follows default argument")
		}
	}
	p.expectOp(")")
}

func (p *parser) inMacro(d *MacroDef, parse func() Expr) Expr {
	p.macros = append(p.macros, d)
	defer func() { p.macros = p.macros[:len(p.macros)-1] }()
	return parse()
}

func (p *parser) macroBody(d *MacroDef, end string) {
	loops := p.loops
	p.loops = 0
	p.inMacro(d, func() Expr {
		d.Body, _ = p.block(end)
		return nil
	})
	p.loops = loops
}

func (p *parser) callTag(line int) Stmt {
	d := &MacroDef{Line: line, Name: "caller"}
	if p.isOp("(") {
		p.signature(d)
	}
	call, ok := p.expression(true).(*CallExpr)
	if !ok {
		failAt(line, "TemplateSyntaxError", "expected a call in the tag 'call'")
	}
	p.macroBody(d, "endcall")
	return &CallStmt{d, call}
}

func (p *parser) withTag() Stmt {
	s := &WithStmt{}
	for p.cur.kind != tBlockEnd {
		if len(s.Targets) > 0 {
			p.expectOp(",")
		}
		s.Targets = append(s.Targets, p.targets("", false))
		p.expectOp("=")
		s.Values = append(s.Values, p.expression(true))
	}
	s.Body, _ = p.block("endwith")
	return s
}

func (p *parser) blockTag() Stmt {
	s := &BlockStmt{Name: p.expect(tName).text}
	s.Scoped = p.skipName("scoped")
	p.skipName("required")
	if p.blocks[s.Name] != nil {
		p.fail("block '%s' defined twice", s.Name)
	}
	p.blocks[s.Name] = s
	loops := p.loops
	p.loops = 0
	s.Body, _ = p.block("endblock")
	p.loops = loops
	p.skipName(s.Name)
	return s
}

// targets parses what stands before "=" or "in": names, tuples of them and, for set, attributes of namespaces.
func (p *parser) targets(end string, namespace bool) Target {
	line := p.cur.line
	var items []Target
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
		return &TupleTarget{items, line}
	}
	return items[0]
}

func (p *parser) oneTarget(namespace bool) Target {
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
		return &AttrTarget{t.text, p.expect(tName).text, t.line}
	}
	return NameTarget(t.text)
}
