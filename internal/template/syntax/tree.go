package syntax

// Expr is a node of an expression.
type Expr interface{ isExpr() }

// Stmt is a node of a statement.
type Stmt interface{ isStmt() }

// Target is what a value is assigned to: a name, an attribute of a namespace, or a tuple of targets.
type Target interface{ isTarget() }

// Expressions. line is kept where evaluation itself can fail.
type (
	// ConstExpr is a literal: nil, bool, int, *big.Int (integers beyond int), float64 or string.
	ConstExpr struct{ V any }
	NameExpr  struct {
		Name string
		Line int
	}
	ListExpr struct {
		Items []Expr
		Tuple bool
		Line  int
	}
	DictExpr struct {
		Keys, Vals []Expr
		Line       int
	}
	UnaryExpr struct { // - or +
		Op   byte
		X    Expr
		Line int
	}
	BinExpr struct { // + - * / // % **
		Op   string
		L, R Expr
		Line int
	}
	NotExpr struct{ X Expr }
	AndExpr struct{ L, R Expr }
	OrExpr  struct{ L, R Expr }
	// CondExpr is "yes if cond else no"; no is nil without an else.
	CondExpr struct {
		Cond, Yes, No Expr
		Line          int
	}
	// CompareExpr is a chain: first ops[0] args[0] ops[1] args[1] ...
	CompareExpr struct {
		First Expr
		Ops   []string
		Args  []Expr
		Line  int
	}
	ConcatExpr struct { // a ~ b ~ c
		Parts []Expr
		Line  int
	}
	AttrExpr struct {
		X    Expr
		Name string
		Line int
	}
	IndexExpr struct {
		X, Key Expr
		Line   int
	}
	SliceExpr struct { // x[start:stop:step]; nil where left out
		X                 Expr
		Start, Stop, Step Expr
		Line              int
	}
	CallExpr struct {
		Fn   Expr
		Args CallArgs
		Line int
	}
	FilterExpr struct {
		X    Expr
		Name string
		Def  any // what builtinNames gave for the name: nil where there is no such filter
		Args CallArgs
		Line int
	}
	TestExpr struct {
		X    Expr
		Name string
		Def  any // as for filterExpr
		Args CallArgs
		Line int
	}
	// BodyExpr is the text of the body of a filter block or a block assignment: the value that filters are applied to.
	BodyExpr struct{ Body []Stmt }
)

// CallArgs are the arguments of a call: pos, *star, name=kw, **dstar.
type CallArgs struct {
	Pos         []Expr
	Names       []string
	Kw          []Expr
	Star, Dstar Expr
}

// Assignment targets.
type (
	NameTarget string
	AttrTarget struct { // namespace attribute
		Name, Attr string
		Line       int
	}
	TupleTarget struct {
		Items []Target
		Line  int
	}
)

// Statements.
type (
	DataStmt   struct{ Text string }
	OutputStmt struct {
		X    Expr
		Line int
	}
	IfStmt struct {
		Conds  []Expr
		Bodies [][]Stmt
		Other  []Stmt
	}
	ForStmt struct {
		Target    Target
		Iter      Expr
		Test      Expr // nil without "if"
		Recursive bool
		Body      []Stmt
		Other     []Stmt
		Line      int
	}
	SetStmt struct {
		Target Target
		X      Expr
		Line   int
	}
	WithStmt struct {
		Targets []Target
		Values  []Expr
		Body    []Stmt
	}
	MacroStmt struct {
		Def *MacroDef
	}
	CallStmt struct {
		Caller *MacroDef
		Call   *CallExpr
	}
	BlockStmt struct {
		Name   string
		Body   []Stmt
		Scoped bool
	}
	// ScopeStmt is a body with variables of its own: the tag "generation".
	ScopeStmt    struct{ Body []Stmt }
	BreakStmt    struct{}
	ContinueStmt struct{}
)

// MacroDef is the parsed definition of a macro or of a call block's body.
type MacroDef struct {
	Name     string
	Params   []string
	Defaults []Expr // of the last len(defaults) parameters
	Body     []Stmt
	// Whether the body mentions varargs, kwargs, caller: only then does the macro take them.
	Varargs, Kwargs, Caller bool
	Line                    int
}

func (*ConstExpr) isExpr()   {}
func (*NameExpr) isExpr()    {}
func (*ListExpr) isExpr()    {}
func (*DictExpr) isExpr()    {}
func (*UnaryExpr) isExpr()   {}
func (*BinExpr) isExpr()     {}
func (*NotExpr) isExpr()     {}
func (*AndExpr) isExpr()     {}
func (*OrExpr) isExpr()      {}
func (*CondExpr) isExpr()    {}
func (*CompareExpr) isExpr() {}
func (*ConcatExpr) isExpr()  {}
func (*AttrExpr) isExpr()    {}
func (*IndexExpr) isExpr()   {}
func (*SliceExpr) isExpr()   {}
func (*CallExpr) isExpr()    {}
func (*FilterExpr) isExpr()  {}
func (*TestExpr) isExpr()    {}
func (*BodyExpr) isExpr()    {}

func (*DataStmt) isStmt()     {}
func (*OutputStmt) isStmt()   {}
func (*IfStmt) isStmt()       {}
func (*ForStmt) isStmt()      {}
func (*SetStmt) isStmt()      {}
func (*WithStmt) isStmt()     {}
func (*MacroStmt) isStmt()    {}
func (*CallStmt) isStmt()     {}
func (*BlockStmt) isStmt()    {}
func (*ScopeStmt) isStmt()    {}
func (*BreakStmt) isStmt()    {}
func (*ContinueStmt) isStmt() {}

func (NameTarget) isTarget()   {}
func (*AttrTarget) isTarget()  {}
func (*TupleTarget) isTarget() {}
