package template

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"ck/internal/template/value"
	"ck/internal/testkit"
)

// hostile are templates that would use up time, memory or stack; each must end in an error.
var hostile = map[string]string{
	"endless macro":            "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
	"two endless macros":       "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
	"branching macros":         "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(60) }}",
	"endless caller":           "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
	"endless recursive loop":   "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
	"endless block":            "{% block a %}{{ self.a() }}{% endblock %}",
	"a billion iterations":     "{% for i in range(1000) %}{% for j in range(1000) %}{% for k in range(1000) %}{% endfor %}{% endfor %}{% endfor %}",
	"a billion written":        "{% for i in range(1000) %}{% for j in range(1000) %}{% for k in range(1000) %}xxxxxxxxxxxxxxxx{% endfor %}{% endfor %}{% endfor %}",
	"big range":                "{% for i in range(1000000000) %}{% endfor %}",
	"big range as list":        "{{ range(1000000000)|list }}",
	"lists of ranges":          "{% set n = namespace(l=[]) %}{% for i in range(100000) %}{% set n.l = n.l + [range(100000)|list] %}{% endfor %}",
	"repeated text":            `{{ "x" * 10000000000 }}`,
	"repeated text by power":   `{{ "x" * 10**10 }}`,
	"repeated list":            "{{ [1] * 10000000000 }}",
	"doubled text":             `{% set n = namespace(s="xxxxxxxx") %}{% for i in range(100) %}{% set n.s = n.s ~ n.s %}{% endfor %}`,
	"doubled text by plus":     `{% set n = namespace(s="xxxxxxxx") %}{% for i in range(100) %}{% set n.s = n.s + n.s %}{% endfor %}`,
	"doubled text by block":    `{% set n = namespace(s="xxxxxxxx") %}{% for i in range(100) %}{% set n.s %}{{ n.s }}{{ n.s }}{% endset %}{% endfor %}`,
	"doubled list":             `{% set n = namespace(s=[1]) %}{% for i in range(100) %}{% set n.s = n.s + n.s %}{% endfor %}`,
	"list of doubled texts":    `{% set n = namespace(s="x"*99, l=[]) %}{% for i in range(100000) %}{% set n.l = n.l + [n.s ~ i] %}{% endfor %}`,
	"text grown bit by bit":    `{% set n = namespace(s="") %}{% for i in range(99999) %}{% for j in range(99999) %}{% set n.s = n.s + "x" %}{% endfor %}{% endfor %}`,
	"replace blow-up":          `{% set n = namespace(s="aaaaaaaaaa") %}{% for i in range(30) %}{% set n.s = n.s.replace("a", n.s) %}{% endfor %}`,
	"replace filter blow-up":   `{% set n = namespace(s="aaaaaaaaaa") %}{% for i in range(30) %}{% set n.s = n.s|replace("", n.s) %}{% endfor %}`,
	"join blow-up":             `{% set n = namespace(s="aaaaaaaaaa") %}{% for i in range(30) %}{% set n.s = n.s|join(n.s) %}{% endfor %}`,
	"join method blow-up":      `{% set n = namespace(s="aaaaaaaaaa") %}{% for i in range(30) %}{% set n.s = n.s.join(n.s) %}{% endfor %}`,
	"huge power":               "{{ 10 ** 10 ** 10 ** 10 ** 10 }}",
	"tower of powers":          "{{ 9 ** (9 ** (9 ** 9)) }}",
	"repeated squares":         "{% set n = namespace(x=3) %}{% for i in range(1000) %}{% set n.x = n.x * n.x %}{% endfor %}",
	"powers in a loop":         "{% for i in range(100000) %}{% for j in range(100000) %}{% if 3 ** 40000 % 7 %}{% endif %}{% endfor %}{% endfor %}",
	"negative shift of floats": "{{ 2.0 ** 100000 }}",
	"wide centre":              `{{ "x"|center(10000000000) }}`,
	"wide ljust":               `{{ "x".ljust(10000000000) }}`,
	"wide zfill":               `{{ "x".zfill(10000000000) }}`,
	"wide tabs":                `{{ "\t".expandtabs(10000000000) }}`,
	"wide indent":              `{{ "x"|indent(10000000000, true) }}`,
	"wide indent of lines":     `{{ ("x\n" * 1000000)|indent(1000) }}`,
	"wide format":              `{{ "{:10000000000}".format(1) }}`,
	"precise format":           `{{ "{:.10000000000f}".format(1.5) }}`,
	"wide percent":             `{{ "%10000000000d" % 1 }}`,
	"precise percent":          `{{ "%.10000000000f" % 1.5 }}`,
	"wide by star":             `{{ "%*d" % (10000000000, 1) }}`,
	"deep JSON indent":         `{% set n = namespace(x=[1]) %}{% for i in range(300) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x|tojson(indent=1000000000) }}`,
	"deep list":                `{% set n = namespace(x=1) %}{% for i in range(100000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}`,
	"deep list as JSON":        `{% set n = namespace(x=1) %}{% for i in range(100000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x|tojson }}`,
	"deep lists compared":      `{% set n = namespace(x=1, y=1) %}{% for i in range(100000) %}{% set n.x = [n.x] %}{% set n.y = [n.y] %}{% endfor %}{{ n.x == n.y }}`,
	"deep lists sorted":        `{% set n = namespace(x=1, y=1) %}{% for i in range(100000) %}{% set n.x = [n.x] %}{% set n.y = [n.y] %}{% endfor %}{{ [n.x, n.y]|sort }}`,
	"deep tuple as key":        `{% set n = namespace(x=1) %}{% for i in range(100000) %}{% set n.x = (n.x,) %}{% endfor %}{{ {n.x: 1} }}`,
	"wide tuple as key":        `{% set n = namespace(x=1) %}{% for i in range(60) %}{% set n.x = (n.x, n.x) %}{% endfor %}{{ {n.x: 1} }}`,
	"shared list printed":      `{% set n = namespace(x=1) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}`,
	"shared list as JSON":      `{% set n = namespace(x=[]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x|tojson|length }}`,
	"shared lists compared":    `{% set n = namespace(x=1, y=1) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}`,
	"namespace in itself":      `{% set n = namespace() %}{% set n.n = n %}{{ n }}`,
	"deep generators":          `{% set n = namespace(x=[1]) %}{% for i in range(100000) %}{% set n.x = n.x|map("string") %}{% endfor %}{{ n.x|list }}`,
	"split into characters":    `{% set s = "x " * 1000000 %}{{ s.split()|length }}`,
	"list of characters":       `{% set s = "x" * 8000000 %}{{ s|list|length }}`,
	"lines":                    `{% set s = "\n" * 3000000 %}{{ s.splitlines()|length }}`,
	"long scans":               `{% set s = "x" * 8000000 %}{% for i in range(100000) %}{% if s[-1] == "y" or "y" in s %}{% endif %}{% endfor %}`,
	"long case changes":        `{% set s = "x" * 8000000 %}{% for i in range(100000) %}{% if s.islower() and s|upper|length == 3 %}{% endif %}{% endfor %}`,
	"long strips":              `{% set s = " " * 8000000 %}{% for i in range(100000) %}{% if s|trim %}{% endif %}{% endfor %}`,
	"long strips of a set":     `{% set s = "x" * 4000000 %}{% set c = "abcdefghijklmnopqrstuvwxyz" * 99 %}{% for i in range(100000) %}{% if s.strip(c) %}{% endif %}{% endfor %}`,
	"long comparisons":         `{% set s = "x" * 4000000 %}{% set t = "x" * 4000000 %}{% for i in range(100000) %}{% for j in range(100000) %}{% if s == t and s < t %}{% endif %}{% endfor %}{% endfor %}`,
	"captured scopes":          `{% set n = namespace(l=none) %}{% for i in range(100000) %}{% for j in range(100000) %}{% set p = n.l %}{% macro m() %}{{ p }}{% endmacro %}{% set n.l = m %}{% endfor %}{% endfor %}`,
	"chained methods":          `{% set n = namespace(l="x") %}{% for i in range(100000) %}{% for j in range(100000) %}{% set n.l = [n.l, "x".upper] %}{% endfor %}{% endfor %}`,
	"many slices":              `{% set n = namespace(l=[]) %}{% set a = [1,2,3] %}{% for i in range(100000) %}{% for j in range(100000) %}{% set n.l = [n.l, a[1:]] %}{% endfor %}{% endfor %}`,
	"many batches":             `{{ range(100000)|batch(100000, 1)|map("list")|map("batch", 100000000, 1)|map("list")|list|length }}`,
	"many dict entries":        `{% set n = namespace() %}{% for i in range(1000) %}{% set n.x = dict(n.x or {}, **{"k" ~ i: "x" * i}) %}{% endfor %}`,
	"sum of lists":             `{{ range(100000)|map("string")|map("list")|sum(start=[]) }}`,
	"big sort":                 `{% for i in range(1000) %}{% set x = range(100000)|sort(reverse=true) %}{% endfor %}`,
	"big unique":               `{% for i in range(1000) %}{% set x = range(100000)|unique|list %}{% endfor %}`,
	"big cycler":               `{% for i in range(1000) %}{% set x = cycler(*range(100000)) %}{% endfor %}`,
	"escape blow-up":           `{% set n = namespace(s="&") %}{% for i in range(100) %}{% set n.s = n.s|string|forceescape|string ~ n.s|forceescape %}{% endfor %}`,
	"JSON blow-up":             `{% set n = namespace(s="\\") %}{% for i in range(100) %}{% set n.s = n.s|tojson %}{% endfor %}`,
	"JSON of JSON":             `{{ ("[" * 100000)|from_json }}`,
	"fields in fields":         `{{ ("{:" * 100000).format(1) }}`,
	"format fields":            `{{ ("{0}" * 1000000).format("x" * 1000) }}`,
	"format attributes":        `{{ ("{0" ~ ".a" * 1000000 ~ "}").format(1) }}`,
	"strftime":                 `{{ strftime_now("%c" * 4000000) }}`,
	"truncate":                 `{% for i in range(100000) %}{% set x = ("x y" * 1000000)|truncate(3000) %}{% endfor %}`,
	"comparison of numbers":    `{% set x = 3 ** 40000 %}{% for i in range(100000) %}{% for j in range(1000) %}{% if x < 1.5 or x == x + 1 %}{% endif %}{% endfor %}{% endfor %}`,
	"text of numbers":          `{% set x = 3 ** 8000 %}{% for i in range(100000) %}{% for j in range(1000) %}{% if x|string %}{% endif %}{% endfor %}{% endfor %}`,
	"numbers as keys":          `{% set x = 3 ** 40000 %}{% set d = {x: 1} %}{% for i in range(100000) %}{% for j in range(1000) %}{% if d[x] %}{% endif %}{% endfor %}{% endfor %}`,
	"division of numbers":      `{% set x = 3 ** 40000 %}{% set y = 7 ** 10000 %}{% for i in range(100000) %}{% for j in range(1000) %}{% if x / y or x // y %}{% endif %}{% endfor %}{% endfor %}`,
	"rounding":                 `{% set x = 3 ** 40000 %}{% for i in range(100000) %}{% for j in range(1000) %}{% if x|round(-399) %}{% endif %}{% endfor %}{% endfor %}`,
	"many parameters":          `{% for i in range(100000) %}{% if namespace(**dict(range(100000)|map("string")|batch(2))) %}{% endif %}{% endfor %}`,
	"case tests":               `{% set s = "x" * 8000000 %}{% for i in range(100000) %}{% if s is lower and s is upper %}{% endif %}{% endfor %}`,
	"long keys":                `{% set s = "x" * 8000000 %}{% set d = dict([[1,1],[2,2],[3,3],[4,4],[5,5],[6,6],[7,7],[8,8],[9,9],[0,0]]) %}{% for i in range(100000) %}{% if d[s] or s in d or d.get(s) %}{% endif %}{% endfor %}`,
	"long paths":               `{% set s = "." * 8000000 %}{{ [1]|map(attribute=s)|list }}`,
	"many sort keys":           `{% set s = "," * 8000000 %}{{ [1]|sort(attribute=s) }}`,
	"named fields":             `{% set d = dict(range(20000)|map("string")|batch(2)) %}{{ ("{19998}" * 1000000).format(**d) }}{{ ("{a}" * 1000000).format(a=1, **d) }}`,
	"missing parameters":       `{% set d = dict(range(60000)|map("string")|batch(2)) %}{% macro m(a, b, c, d, e, f) %}{{ kwargs }}{% endmacro %}{% for i in range(10000) %}{% set x = m(**d) %}{% endfor %}`,
	"numbers from text":        `{% set s = "1" * 8000000 %}{% for i in range(10000) %}{% set x = s|int + s|float %}{% endfor %}`,
	"final sigmas":             `{% set s = "Σ'" * 1000000 %}{% for i in range(1000) %}{% if s|lower == 1 %}{% endif %}{% endfor %}`,
}

// nested are templates nested too deeply for the parser, or too long.
func nested() map[string]string {
	rep := strings.Repeat
	n := 200000
	return map[string]string{
		"parentheses":      "{{ " + rep("(", n) + "1" + rep(")", n) + " }}",
		"brackets":         "{{ " + rep("[", n) + rep("]", n) + " }}",
		"braces":           "{{ " + rep("{1:", n) + "1" + rep("}", n) + " }}",
		"subscripts":       "{{ x" + rep("[x", n) + rep("]", n) + " }}",
		"calls":            "{{ " + rep("f(", n) + rep(")", n) + " }}",
		"filter arguments": "{{ x" + rep("|default(x", n/2) + rep(")", n/2) + " }}",
		"test arguments":   "{{ x" + rep(" is eq(x", n/2) + rep(")", n/2) + " }}",
		"nots":             "{{ " + rep("not ", n) + "1 }}",
		"minuses":          "{{ " + rep("-", n) + "1 }}",
		"else":             "{{ " + rep("1 if 0 else ", n/4) + "1 }}",
		"ifs":              rep("{% if 1 %}", n/4) + rep("{% endif %}", n/5),
		"fors":             rep("{% for x in y %}", n/8),
		"targets":          "{% for " + rep("(", n) + "x" + rep(",)", n) + " in y %}{% endfor %}",
		"macros":           rep("{% macro m(a=varargs) %}{{ caller }}", n/8),
		"too long":         rep("x", 2<<20),
		"sums":             "{{ 1" + rep("+1", n) + " }}",
		"ors":              "{{ 0" + rep(" or 0", n/2) + " }}",
		"attributes":       "{{ namespace()" + rep(".a", n) + " }}",
		"methods":          `{{ ""` + rep(".upper()", n/4) + " }}",
		"filters":          `{{ ""` + rep("|e", n) + " }}",
		"powers":           "{{ 1" + rep("**1", n) + " }}",
		"long if":          "{{ 1" + rep(" if 1", n/2) + " }}",
		"long number":      "{{ " + rep("9", n) + " }}",
		"hex numbers":      "{{ [" + rep("0x1,", n) + "] }}{{ 1 + 'a' }}",
		"named arguments":  "{{ dict(" + rep("a=1,", n) + ") }}",
		"raws":             rep("{% raw %}", n/4),
		"comments":         rep("{#", n),
		"open strings":     "{{ '" + rep(`\'`, n),
	}
}

// TestHostile measures each hostile template: an error, within a second of CPU time, within 100 MB.
func TestHostile(t *testing.T) {
	all := nested()
	for name, src := range hostile {
		all[name] = src
	}
	var slowest time.Duration
	var most uint64
	for name, src := range all {
		took, used, err := measure(t, src)
		for range 2 { // where other processes hold up the garbage collector, more of it stands: the least of three counts
			if took <= time.Second && used <= 100<<20 {
				break
			}
			took2, used2, _ := measure(t, src)
			took, used = min(took, took2), min(used, used2)
		}
		var e *Error
		switch {
		case !errors.As(err, &e) || e.Kind == "InternalError" || e.Line < 1:
			t.Errorf("%s: error %v", name, err)
		case took > time.Second:
			t.Errorf("%s took %v: %v", name, took, err)
		case used > 100<<20:
			t.Errorf("%s used %d MB: %v", name, used>>20, err)
		}
		slowest, most = max(slowest, took), max(most, used)
	}
	t.Logf("%d templates, slowest %v, most memory %d MB", len(all), slowest, most>>20)
}

// measure parses and renders a template; took is CPU time, used is how far heap and stacks grew, garbage included.
func measure(t *testing.T, src string) (took time.Duration, used uint64, err error) {
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	stop, peak := make(chan bool), make(chan uint64)
	go watchHeap(stop, peak)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := testkit.ThreadCPUTime(t)
	tmpl, err := Parse("hostile", src)
	if err == nil {
		_, err = tmpl.Render(Vars{"x": 1, "y": value.NewList()}, Options{Now: now})
	}
	took = testkit.ThreadCPUTime(t) - start
	close(stop)
	most, base := <-peak, before.HeapAlloc+before.StackInuse
	return took, most - min(most, base), err
}

// watchHeap reports the largest heap seen until stop is closed.
func watchHeap(stop chan bool, peak chan uint64) {
	most := uint64(0)
	for {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc+m.StackInuse)
		select {
		case <-stop:
			runtime.ReadMemStats(&m)
			peak <- max(most, m.HeapAlloc+m.StackInuse)
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}
