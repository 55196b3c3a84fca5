package syntax

// Expr is a node of an expression.
type Expr interface{ isExpr() }

// Stmt is a node of a statement.
type Stmt interface{ isStmt() }

// Target is what a value is assigned to: a name, an attribute of a namespace, or a tuple of targets.
type Target interface{ isTarget() }

// Expressions. Line is kept where evaluation itself can fail.
type (
	// ConstExpr is a literal: nil, bool, int, *big.Int (integers beyond int), float64 or string.
	ConstExpr struct{ V any }
	// NameExpr is a variable.
	NameExpr struct {
		Name string
		Line int
	}
	// ListExpr is a list or a tuple.
	ListExpr struct {
		Items []Expr
		Tuple bool
		Line  int
	}
	// DictExpr is a dict; a key may stand more than once.
	DictExpr struct {
		Keys, Vals []Expr
		Line       int
	}
	// UnaryExpr is - or + before a value.
	UnaryExpr struct {
		Op   byte
		X    Expr
		Line int
	}
	// BinExpr is one of + - * / // % ** between two values.
	BinExpr struct {
		Op   string
		L, R Expr
		Line int
	}
	// NotExpr is "not x".
	NotExpr struct{ X Expr }
	// AndExpr is "l and r".
	AndExpr struct{ L, R Expr }
	// OrExpr is "l or r".
	OrExpr struct{ L, R Expr }
	// CondExpr is "yes if cond else no"; No is nil without an else.
	CondExpr struct {
		Cond, Yes, No Expr
		Line          int
	}
	// CompareExpr is a chain: First Ops[0] Args[0] Ops[1] Args[1] ...
	CompareExpr struct {
		First Expr
		Ops   []string
		Args  []Expr
		Line  int
	}
	// ConcatExpr is a ~ b ~ c.
	ConcatExpr struct {
		Parts []Expr
		Line  int
	}
	// AttrExpr is x.name.
	AttrExpr struct {
		X    Expr
		Name string
		Line int
	}
	// IndexExpr is x[key].
	IndexExpr struct {
		X, Key Expr
		Line   int
	}
	// SliceExpr is x[start:stop:step]; parts that were left out are nil.
	SliceExpr struct {
		X                 Expr
		Start, Stop, Step Expr
		Line              int
	}
	// CallExpr is fn(args).
	CallExpr struct {
		Fn   Expr
		Args CallArgs
		Line int
	}
	// FilterExpr is x|name(args).
	FilterExpr struct {
		X    Expr
		Name string
		Def  any // what Names gave for the name: nil where there is no such filter
		Args CallArgs
		Line int
	}
	// TestExpr is "x is name(args)".
	TestExpr struct {
		X    Expr
		Name string
		Def  any // as for FilterExpr
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
	// NameTarget is a variable.
	NameTarget string
	// AttrTarget is an attribute of a namespace.
	AttrTarget struct {
		Name, Attr string
		Line       int
	}
	// TupleTarget takes a sequence apart.
	TupleTarget struct {
		Items []Target
		Line  int
	}
)

// Statements.
type (
	// DataStmt is text outside of tags.
	DataStmt struct{ Text string }
	// OutputStmt is {{ x }}.
	OutputStmt struct {
		X    Expr
		Line int
	}
	// IfStmt runs the body of the first condition that holds, or Other.
	IfStmt struct {
		Conds  []Expr
		Bodies [][]Stmt
		Other  []Stmt
	}
	// ForStmt is a loop; Other runs where no iteration comes to its end.
	ForStmt struct {
		Target    Target
		Iter      Expr
		Test      Expr // nil without "if"
		Recursive bool
		Body      []Stmt
		Other     []Stmt
		Line      int
	}
	// SetStmt is an assignment; that of a block has a BodyExpr.
	SetStmt struct {
		Target Target
		X      Expr
		Line   int
	}
	// WithStmt is a body with variables of its own, which are given values first.
	WithStmt struct {
		Targets []Target
		Values  []Expr
		Body    []Stmt
	}
	// MacroStmt defines a macro.
	MacroStmt struct{ Def *MacroDef }
	// CallStmt calls a macro, which may call the body of the tag.
	CallStmt struct {
		Caller *MacroDef
		Call   *CallExpr
	}
	// BlockStmt is a named block, where it stands.
	BlockStmt struct {
		Name   string
		Body   []Stmt
		Scoped bool
	}
	// ScopeStmt is a body with variables of its own: the tag "generation".
	ScopeStmt struct{ Body []Stmt }
	// BreakStmt leaves the loop.
	BreakStmt struct{}
	// ContinueStmt goes on with the next item.
	ContinueStmt struct{}
)

// MacroDef is the parsed definition of a macro or of a call block's body.
type MacroDef struct {
	Name     string
	Params   []string
	Defaults []Expr // of the last len(Defaults) parameters
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
