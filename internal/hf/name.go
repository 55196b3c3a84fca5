package hf

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// nameParts is what the name of a model says: owner/base-version-size-finetune, each but the base optional.
type nameParts struct{ full, owner, base, finetune, version, size string }

var (
	versionPart  = regexp.MustCompile(`(?i)^(v|iter)?\d+(\.\d+)*$`)
	typePart     = regexp.MustCompile(`(?i)^(i?q\d(_\w)*|b?fp?(16|32))$`)
	sizePart     = regexp.MustCompile(`(?i)^((a|\d+x)?\d+([._]\d+)?[kmbt]\d?|small|mini|medium|large|x?xl)$`)
	finetunePart = regexp.MustCompile(`(?i)^(chat|instruct|vision|lora)$`)
)

// part is one of the parts between hyphens, and what it may be.
type part struct {
	text                                  string
	base, size, finetune, version, weight bool // weight: a type of weights, which no key says
}

func (p *part) unknown() bool { return !p.base && !p.size && !p.finetune && !p.version && !p.weight }

// splitName reads the name of a model of total parameters, by which a size is told from a length of context. Of a
// name that says nothing beyond itself only full and owner are set.
func splitName(id string, total float64) nameParts {
	if strings.Contains(id, " ") { // a sentence
		return nameParts{full: id}
	}
	n := nameParts{full: id}
	if owner, name, ok := strings.Cut(id, "/"); ok {
		n.full = name
		if !strings.HasPrefix(owner, ".") { // no path
			n.owner = owner
		}
	}
	parts := markParts(n.full, total)
	markBase(parts)
	join := func(is func(*part) bool) string {
		var out []string
		for i := range parts {
			if is(&parts[i]) {
				out = append(out, parts[i].text)
			}
		}
		return strings.Join(out, "-")
	}
	n.finetune = join(func(p *part) bool { return p.finetune })
	n.version = join(func(p *part) bool { return p.version && !p.base })
	var sizes []string
	for _, p := range parts {
		if p.size && !slices.Contains(sizes, p.text) {
			sizes = append(sizes, p.text)
		}
	}
	n.size = strings.Join(sizes, "-")
	if n.finetune != "" || n.version != "" || n.size != "" {
		n.base = join(func(p *part) bool { return p.base })
	}
	return n
}

// markParts marks the parts that are known by their form.
func markParts(name string, total float64) []part {
	var parts []part
	for text := range strings.SplitSeq(name, "-") {
		if text == "" {
			continue
		}
		p := part{text: text}
		switch {
		case versionPart.MatchString(text):
			p.version = true
		case typePart.MatchString(text):
			p.weight = true
			p.text = strings.ToUpper(text)
		case len(parts) > 0 && sizePart.MatchString(text):
			p.markSize(total)
		case len(parts) > 0 && finetunePart.MatchString(text):
			p.finetune = true
		}
		parts = append(parts, p)
	}
	// Words for sizes count where there is no number.
	hasDigit := func(s string) bool { return strings.ContainsFunc(s, unicode.IsDigit) }
	if slices.ContainsFunc(parts, func(p part) bool { return p.size && hasDigit(p.text) }) {
		for i := range parts {
			parts[i].size = parts[i].size && hasDigit(parts[i].text)
		}
	}
	return parts
}

// markSize reads a size. One that is far from the number of parameters is a length of context, and belongs to the
// finetune.
func (p *part) markSize(total float64) {
	text := strings.ReplaceAll(p.text, "_", ".")
	digit := func(i int) bool { return i >= 0 && text[i] >= '0' && text[i] <= '9' }
	if end := len(text) - 1; digit(end) { // 7b1 is 7.1B
		text = text[:end-1] + "." + text[end:] + text[end-1:end]
	}
	end := len(text) - 1
	if digit(end - 1) {
		text = text[:end] + strings.ToUpper(text[end:])
	}
	p.text = text
	p.size = true
	number, err := strconv.ParseFloat(text[:end], 64)
	if err != nil || total == 0 {
		return
	}
	number *= math.Pow(1000, float64(strings.IndexByte(" KMBT", text[end])))
	if math.Abs(number-total) > math.Floor(7*total/8) {
		p.size, p.finetune = false, true
		p.text = text[:end] + strings.ToLower(text[end:])
	}
}

// markBase marks the base, with which the name begins, and what is left as finetune.
func markBase(parts []part) {
	start := true
	for i := range parts {
		p := &parts[i]
		switch {
		case start && (p.unknown() && unicode.IsLetter([]rune(p.text)[0]) || p.version):
			p.base = true
		default:
			start = false
			p.finetune = p.finetune || p.unknown()
		}
	}
	for i := len(parts) - 1; i >= 0 && parts[i].base &&
		parts[i].version; i-- { // a version at the end is not of the base
		parts[i].base = false
	}
}

var noTitle = regexp.MustCompile(`^(v\d+(\.\d+)*|\d.*)$`)

// title writes a name as a title: words of small letters begin with a capital, but for versions and numbers.
func title(name string) string {
	words := strings.Fields(strings.ReplaceAll(name, "-", " "))
	for i, w := range words {
		if w != strings.ToLower(w) || w == strings.ToUpper(w) || noTitle.MatchString(w) {
			continue
		}
		var b strings.Builder
		letter := false
		for _, r := range w {
			if !letter {
				r = unicode.ToTitle(r)
			}
			letter = unicode.IsLetter(r)
			fmt.Fprint(&b, string(r))
		}
		words[i] = b.String()
	}
	return strings.Join(words, " ")
}
