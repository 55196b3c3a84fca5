// Package page shows what is known of a machine in words: its page, its document of JSON, the report of findings.
//
// A page is sections of facts and tables. People read it indented and wrapped; programs read one fact a line, or the JSON. The package
// reads no file and measures nothing: it is given a survey, or a report.
package page

import (
	"io"
	"strconv"
	"strings"

	"ck/internal/findings"
	"ck/internal/humanize"
	"ck/internal/topo"
)

// maker makes the sections of a survey.
type maker struct {
	s    *topo.Survey
	full bool // nothing is shortened
	list int  // columns of a list of numbers
}

// Width is how many columns the page has where nobody says it; prose is never wider.
const Width = 110

// Write prints the page of a machine in so many columns, or plain: one fact a line.
func Write(w io.Writer, s *topo.Survey, plain bool, columns int) error {
	p := maker{s, plain, max(24, humanize.ListColumns+columns-Width)}
	return writeSections(w, []section{p.machine(), p.limits(), p.packages(), p.memory(), p.distances(), p.caches(), p.cores(), p.isa(), p.huge(),
		p.settings(), p.accelerators(), p.cxl(), p.rdma(), p.power(), p.thermal(), p.resctrl(), p.missing(), p.findings()}, plain, columns)
}

// numbers is a list of numbers of CPUs or nodes.
func (p maker) numbers(ids []int) string {
	if p.full && len(ids) > 0 {
		return strings.Join(humanize.Ranges(ids), ",")
	}
	return humanize.ShortList(ids, p.list)
}

// shownMissing is how many sentences of what is missing people are shown.
const shownMissing = 10

func (p maker) missing() section {
	sec := section{name: "missing"}
	for i, m := range p.s.Missing {
		if i == shownMissing && !p.full {
			sec.add("more", humanize.Plural(len(p.s.Missing)-i, "sentence")+"; --plain has all")
			break
		}
		sec.add(strconv.Itoa(i+1), m)
	}
	return sec
}

// findings says how many there are; the check command says which.
func (p maker) findings() section {
	r := findings.Check(&findings.Subject{Survey: p.s})
	text := r.Summary()
	if len(r.Findings) > 0 {
		text += "; cktopo check lists them"
	}
	return section{name: "check", facts: []fact{{name: "findings", value: text}}}
}
