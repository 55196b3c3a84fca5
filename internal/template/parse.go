package template

import (
	"fmt"
	"slices"
	"strings"
)

// tree is a parsed template. It never changes.
type tree struct {
	body   []stmt
	blocks map[string]*blockStmt // by name, wherever they stand
}

// builtinNames gives the definitions of filters and tests by their names, nil for unknown ones. The tree keeps them, unseen.
type builtinNames struct{ filter, test func(name string) any }

// parseTree parses a template. Errors are of type *syntaxError: of kind "TemplateSyntaxError", "TemplateAssertionError" (an unknown filter or
// test), "LimitError" (too long, too deeply nested), or "InternalError", which is a defect of this package.
func parseTree(source string, names builtinNames) (t *tree, err error) {
	if len(source) > maxSource {
		return nil, &syntaxError{Line: 1, Kind: "LimitError", Msg: "the template is longer than 1 MiB"}
	}
	p := &parser{lex: newLexer(source), names: names, blocks: map[string]*blockStmt{}}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *syntaxError:
			t, err = nil, e
		default: // a template from a stranger must not end the program
			t, err = nil, &syntaxError{Line: p.cur.line, Kind: "InternalError", Msg: fmt.Sprint(e)}
		}
	}()
	p.advance()
	body := p.bodyUntil()
	if len(p.unknown) > 0 {
		return nil, p.unknown[0]
	}
	return &tree{body: body, blocks: p.blocks}, nil
}

type parser struct {
	lex       *lexer
	cur, peek token
	peeked    bool
	depth     int            // nested parse functions
	loops     int            // loops around the current statement, within the macro
	soft      int            // conditions around the current node: there an unknown filter fails only when it is reached
	macros    []*macroDef    // around the current node
	unknown   []*syntaxError // unknown filters and tests outside of conditions
	names     builtinNames
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
				p.fail("unexpected end of template; the tag '%s' needs %s", p.tags[len(p.tags)-1], "'"+strings.Join(ends, "' or '")+"'")
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
			return &breakStmt{}
		}
		return &continueStmt{}
	}
	p.refuse(t)
	return nil
}

// refuse fails on a tag that templates may not have.
func (p *parser) refuse(t token) {
	switch t.text {
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
