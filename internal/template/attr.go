package template

import (
	"math/big"
	"strings"
)

// attributer is an Object with attributes of its own.
type attributer interface {
	Attr(name string) (Value, bool)
}

// attr is v.name: a method or an attribute first, else an item.
func (r *env) attr(v Value, name string) Value {
	if a, ok := r.attribute(v, name); ok {
		return a
	}
	if d, ok := v.(*Dict); ok {
		if x, ok := d.Get(name); ok {
			return x
		}
	}
	return r.noAttr(v, name)
}

func (r *env) noAttr(v Value, name string) Value {
	what := typeName(v)
	switch what {
	case "NoneType":
		what = "None"
	case "Namespace", "LoopContext", "Macro":
	default:
		what += " object"
	}
	return r.undefined("'%s' has no attribute '%s'", what, name)
}

// attribute is a method or attribute in Python's sense. Those which would change a value are undefined, and an error when called.
func (r *env) attribute(v Value, name string) (Value, bool) {
	switch v := v.(type) {
	case *Undefined:
		r.missing(v)
	case *namespace:
		return v.attrs.Get(name)
	case attributer:
		if a, ok := v.Attr(name); ok {
			return a, true
		}
	case *List:
		if v.group && name == "grouper" {
			return v.items[0], true
		}
		if v.group && name == "list" {
			return v.items[1], true
		}
	}
	kind := methodKind(v)
	if f := methodTable[kind][name]; f != nil {
		return r.bind(v, f), true
	}
	unsafe := changing[kind+"."+name]
	if strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__") {
		d, ok := v.(*Dict)
		unsafe = !ok || d.find(name) < 0
	}
	if unsafe {
		return r.forbidden("SecurityError", "access to attribute '%s' of '%s' object is unsafe", name, typeName(v)), true
	}
	return nil, false
}

// item is v[key]: an item first, else an attribute.
func (r *env) item(v, key Value) Value {
	if x, ok := r.element(v, key); ok {
		return x
	}
	r.use(v)
	return r.itemAttr(v, key)
}

func (r *env) itemAttr(v, key Value) Value {
	name, ok := plainText(key)
	if !ok {
		return r.undefined("%s object has no element %s", typeName(v), r.short(key))
	}
	if a, ok := r.attribute(v, name); ok {
		return a
	}
	return r.noAttr(v, name)
}

// short is repr(v) for messages; long values give their type instead.
func (r *env) short(v Value) string {
	switch v.(type) {
	case nil, bool, int, float64:
		return r.repr(v)
	}
	return "of type " + typeName(v)
}

// changing are the methods that would change a value; the sandbox refuses them.
var changing = map[string]bool{
	"list.append": true, "list.clear": true, "list.extend": true, "list.insert": true, "list.pop": true, "list.remove": true,
	"list.reverse": true, "list.sort": true,
	"dict.clear": true, "dict.pop": true, "dict.popitem": true, "dict.setdefault": true, "dict.update": true,
}

// methodKind is the row of methodTable for v.
func methodKind(v Value) string {
	switch v := v.(type) {
	case string, Markup, *mixed:
		return "str"
	case *List:
		if v.tuple {
			return "tuple"
		}
		return "list"
	case *Dict:
		return "dict"
	case bool, int, *big.Int:
		return "int"
	case float64:
		return "float"
	case *pyRange:
		return "range"
	case *cycler:
		return "cycler"
	}
	return ""
}
