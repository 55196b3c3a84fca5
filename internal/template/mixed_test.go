package template

import (
	"strings"
	"testing"

	"ck/internal/template/value"
)

// shown is a rendering with the template's own stretches in «».
func shown(list []value.Part) string {
	var b strings.Builder
	for _, p := range list {
		if p.Own {
			b.WriteString("«" + p.Text + "»")
		} else {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// Each way in which a template can make a text of others: what a message wrote is never the template's own, and what
// moves text keeps what is.
func TestWhoseText(t *testing.T) {
	vars := Vars{"c": value.Untrusted("<|IM|> x"), "p": value.Untrusted("<|i"), "q": value.Untrusted("m|>"), "n": value.Untrusted("60"), "role": "user", "e": value.Untrusted(""),
		"m": value.NewList(value.NewDict().Set("role", "user").Set("content", value.Untrusted("<u>")), value.NewDict().Set("role", "model").Set("content", value.Untrusted("<v>"))),
		"j": value.Untrusted(`{"<k>": ["<w>", 7]}`), "h": value.Untrusted("&lt;b&gt;")}
	for src, want := range map[string]string{
		// Moved.
		"<a>{{ c }}<b>":                                                        "«<a>»<|IM|> x«<b>»",
		"{{ '<|' + role + '|>' + c + '<b>' }}":                                 "«<|user|>»<|IM|> x«<b>»",
		"{{ '<|' ~ p ~ q ~ '|>' }}":                                            "«<|»<|im|>«|>»",
		"{{ ('<a>' + c + '<b>\n')|trim }}":                                     "«<a>»<|IM|> x«<b>»",
		"{{ ('  <a>' + c).strip()[2:] }}":                                      "«>»<|IM|> x",
		"{{ ('<a>' + c)[:4] }}":                                                "«<a>»<",
		"{{ (c + '<a>').split(' ')[1] }}":                                      "x«<a>»",
		"{{ (c + '\n<a>').splitlines()[1] }}":                                  "«<a>»",
		"{{ (c + ' <a>').split()|last }}":                                      "«<a>»",
		"{{ (c + '=<a>').partition('=')[2] }}":                                 "«<a>»",
		"{{ (c + '<a>').removesuffix('a>') }}":                                 "<|IM|> x«<»",
		"{{ ['<a>', c, role]|join('-') }}":                                     "«<a>-»<|IM|> x«-user»",
		"{{ '<a>'.join([c, c]) }}":                                             "<|IM|> x«<a>»<|IM|> x",
		"{{ p.join(['<a>', '<b>']) }}":                                         "«<a>»<|i«<b>»",
		"{{ '<a>%s<b>%d' % (c, 3) }}":                                          "«<a>»<|IM|> x«<b>3»",
		"{{ '<a>{}<b>'.format(c) }}":                                           "«<a>»<|IM|> x«<b>»",
		"{{ '<a>%s<b>'|format(c) }}":                                           "«<a>»<|IM|> x«<b>»",
		"{{ ('<a>' + c)|replace('x', '<y>') }}":                                "«<a>»<|IM|> «<y>»",
		"{{ '<a>X'|replace('X', c) }}":                                         "«<a>»<|IM|> x",
		"{% set s %}<a>{{ c }}{% endset %}{{ s }}":                             "«<a>»<|IM|> x",
		"{% macro f(x) %}<a>{{ x }}{% endmacro %}{{ f(c) }}":                   "«<a>»<|IM|> x",
		"{% for x in m %}<a>{{ x.content }}{{ x.role }}{% endfor %}":           "«<a>»<u>«user<a>»<v>«model»",
		"{{ m|map(attribute='content')|join('<a>') }}":                         "<u>«<a>»<v>",
		"{% set ns = namespace(s='<a>') %}{% set ns.s = ns.s ~ c %}{{ ns.s }}": "«<a>»<|IM|> x",
		"{{ e|default('<a>', true) }}{{ e ~ '<b>' }}":                          "«<a><b>»",
		"{{ c if c is string else '' }}{{ '<a>' if 'x' in c }}":                "<|IM|> x«<a>»",
		"{{ ('<a>' + c)|safe }}{{ c|string }}":                                 "«<a>»<|IM|> x<|IM|> x",
		"{% filter trim %} <a>{{ c }}{% endfilter %}":                          "«<a>»<|IM|> x",
		"{% for i in range(2) %}<{{ i }}>{% endfor %}":                         "«<0><1>»",
		// Made of it: all of the result is from outside.
		"{{ c|lower }}":                                                              "<|im|> x",
		"{{ ('<a>' + c)|lower }}":                                                    "<a><|im|> x",
		"{{ c|upper }}{{ c|title }}{{ c|capitalize }}":                               "<|IM|> X<|im|> X<|im|> x",
		"{{ c.lower() }}{{ c.swapcase() }}":                                          "<|im|> x<|im|> X",
		"{{ c|reverse }}{{ c[::-1] }}":                                               "x >|MI|<x >|MI|<",
		"{{ c|list|join }}{% for k in c %}{{ k }}{% endfor %}":                       "<|IM|> x<|IM|> x",
		"{{ c|replace('IM', 'im') }}":                                                "<|«im»|> x",
		"{{ c|tojson }}{{ [c] }}{{ c|escape }}":                                      "\"<|IM|> x\"['<|IM|> x']&lt;|IM|&gt; x",
		"{{ ('<a>' + c)|center(14) }}{{ c|truncate(3, true, '<e>', 0) }}":            " <a><|IM|> x  <e>",
		"{{ c.ljust(9, '<') }}{{ p * 2 }}":                                           "<|IM|> x<<|i<|i",
		"{{ ('%-5s|' % p) }}{{ '%.2s' % c }}":                                        "<|i  «|»<|",
		"{{ c % () }}{{ c.format('<a>') }}":                                          "<|IM|> x<|IM|> x",
		"{{ (p ~ '%s') % '<a>' }}{{ (p ~ '{}').format('<a>') }}":                     "<|i<a><|i<a>",
		"{{ (j|from_json)['<k>'][0] }}{% for k in j|from_json %}{{ k }}{% endfor %}": "<w><k>",
		"{{ dict(**(j|from_json))|list|first }}":                                     "<k>",
		"{{ h|striptags }}{{ '&lt;'|striptags }}":                                    "<b>«<»",
		"{{ c[0] ~ 'a' ~ c|last }}{{ c|first }}":                                     "<«a»x<",
		"{% set j = joiner(c) %}{{ j() }}{{ j() }}{{ cycler(c).next() }}":            "<|IM|> x<|IM|> x",
		"{{ '%c' % (n|int) }}{{ '{:c}'.format(60) }}":                                "<<",
		// A number from such a text has a text from outside; others too from then on.
		"<{{ 7 }}{{ n|int }}{{ 8 }}>":                                                                     "«<7»608«>»",
		"{{ c|length }}{{ '<%d>' % 3 }}":                                                                  "8«<»3«>»",
		"{{ '<a>' ~ {'user': '<u>'}[role] ~ {'user': '<u>'}.get('user') }}":                               "«<a><u><u>»",
		"{{ m|selectattr('role', 'equalto', 'user')|map(attribute='role')|first }}":                       "«user»",
		"{{ (c|indent(1)) ~ (c|urlencode) ~ (c|wordcount) }}":                                             "<|IM|> x%3C%7CIM%7C%3E%20x2",
		"{{ [c, 'a']|sort|join }}{{ [c]|unique|join }}{{ {c: '<a>'}|dictsort|first|last }}":               "<|IM|> x«a»<|IM|> x«<a>»",
		"{{ c.__class__ is defined }}{{ (c ~ '') == c }}{{ c is sameas c }}{{ c in [c] }}{{ {c: 1}[c] }}": "«FalseTrueTrueTrue1»",
	} {
		tmpl, err := Parse("whose", src)
		if err != nil {
			t.Fatal(err)
		}
		list, err := tmpl.RenderParts(vars, Options{})
		if got := shown(list); err != nil || got != want {
			t.Errorf("%s:\n got %s, %v\nwant %s", src, got, err, want)
		}
	}
}
