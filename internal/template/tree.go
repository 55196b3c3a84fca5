package template

// expr is a node of an expression.
type expr interface{ isExpr() }

// stmt is a node of a statement.
type stmt interface{ isStmt() }

// target is what a value is assigned to: a name, an attribute of a namespace, or a tuple of targets.
type target interface{ isTarget() }

// Expressions. line is kept where evaluation itself can fail.
type (
	// constExpr is a literal: nil, bool, int, *big.Int (integers beyond int), float64 or string.
	constExpr struct{ v any }
	nameExpr  struct {
		name string
		line int
	}
	listExpr struct {
		items []expr
		tuple bool
		line  int
	}
	dictExpr struct {
		keys, vals []expr
		line       int
	}
	unaryExpr struct { // - or +
		op   byte
		x    expr
		line int
	}
	binExpr struct { // + - * / // % **
		op   string
		l, r expr
		line int
	}
	notExpr struct{ x expr }
	andExpr struct{ l, r expr }
	orExpr  struct{ l, r expr }
	// condExpr is "yes if cond else no"; no is nil without an else.
	condExpr struct {
		cond, yes, no expr
		line          int
	}
	// compareExpr is a chain: first ops[0] args[0] ops[1] args[1] ...
	compareExpr struct {
		first expr
		ops   []string
		args  []expr
		line  int
	}
	concatExpr struct { // a ~ b ~ c
		parts []expr
		line  int
	}
	attrExpr struct {
		x    expr
		name string
		line int
	}
	indexExpr struct {
		x, key expr
		line   int
	}
	sliceExpr struct { // x[start:stop:step]; nil where left out
		x                 expr
		start, stop, step expr
		line              int
	}
	callExpr struct {
		fn   expr
		args callArgs
		line int
	}
	filterExpr struct {
		x    expr
		name string
		def  any // what builtinNames gave for the name: nil where there is no such filter
		args callArgs
		line int
	}
	testExpr struct {
		x    expr
		name string
		def  any // as for filterExpr
		args callArgs
		line int
	}
	// bodyExpr is the text of the body of a filter block or a block assignment: the value that filters are applied to.
	bodyExpr struct{ body []stmt }
)

// callArgs are the arguments of a call: pos, *star, name=kw, **dstar.
type callArgs struct {
	pos         []expr
	names       []string
	kw          []expr
	star, dstar expr
}

// Assignment targets.
type (
	nameTarget string
	attrTarget struct { // namespace attribute
		name, attr string
		line       int
	}
	tupleTarget struct {
		items []target
		line  int
	}
)

// Statements.
type (
	dataStmt   struct{ text string }
	outputStmt struct {
		x    expr
		line int
	}
	ifStmt struct {
		conds  []expr
		bodies [][]stmt
		other  []stmt
	}
	forStmt struct {
		target    target
		iter      expr
		test      expr // nil without "if"
		recursive bool
		body      []stmt
		other     []stmt
		line      int
	}
	setStmt struct {
		target target
		x      expr
		line   int
	}
	withStmt struct {
		targets []target
		values  []expr
		body    []stmt
	}
	macroStmt struct {
		def *macroDef
	}
	callStmt struct {
		caller *macroDef
		call   *callExpr
	}
	blockStmt struct {
		name   string
		body   []stmt
		scoped bool
	}
	// scopeStmt is a body with variables of its own: the tag "generation".
	scopeStmt    struct{ body []stmt }
	breakStmt    struct{}
	continueStmt struct{}
)

// macroDef is the parsed definition of a macro or of a call block's body.
type macroDef struct {
	name     string
	params   []string
	defaults []expr // of the last len(defaults) parameters
	body     []stmt
	// Whether the body mentions varargs, kwargs, caller: only then does the macro take them.
	varargs, kwargs, caller bool
	line                    int
}

func (*constExpr) isExpr()   {}
func (*nameExpr) isExpr()    {}
func (*listExpr) isExpr()    {}
func (*dictExpr) isExpr()    {}
func (*unaryExpr) isExpr()   {}
func (*binExpr) isExpr()     {}
func (*notExpr) isExpr()     {}
func (*andExpr) isExpr()     {}
func (*orExpr) isExpr()      {}
func (*condExpr) isExpr()    {}
func (*compareExpr) isExpr() {}
func (*concatExpr) isExpr()  {}
func (*attrExpr) isExpr()    {}
func (*indexExpr) isExpr()   {}
func (*sliceExpr) isExpr()   {}
func (*callExpr) isExpr()    {}
func (*filterExpr) isExpr()  {}
func (*testExpr) isExpr()    {}
func (*bodyExpr) isExpr()    {}

func (*dataStmt) isStmt()     {}
func (*outputStmt) isStmt()   {}
func (*ifStmt) isStmt()       {}
func (*forStmt) isStmt()      {}
func (*setStmt) isStmt()      {}
func (*withStmt) isStmt()     {}
func (*macroStmt) isStmt()    {}
func (*callStmt) isStmt()     {}
func (*blockStmt) isStmt()    {}
func (*scopeStmt) isStmt()    {}
func (*breakStmt) isStmt()    {}
func (*continueStmt) isStmt() {}

func (nameTarget) isTarget()   {}
func (*attrTarget) isTarget()  {}
func (*tupleTarget) isTarget() {}
