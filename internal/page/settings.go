package page

import (
	"fmt"
	"strings"

	"ck/internal/humanize"
)

func (p maker) settings() section {
	s, sec := &p.s.Settings, section{name: "settings"}
	sec.add("transparent huge pages", s.THP)
	sec.add("their defragmentation", s.THPDefrag)
	sec.add("NUMA balancing", s.NUMABalancing)
	sec.add("governor", s.Governor)
	sec.add("frequency driver", s.Driver)
	sec.add("turbo", s.Turbo)
	sec.add("SMT control", s.SMTControl)
	switch s.UMWaitMax {
	case "":
	case "0":
		sec.add("longest UMWAIT", "no limit")
	default:
		sec.add("longest UMWAIT", s.UMWaitMax+" cycles of the TSC")
	}
	sec.add("swappiness", s.Swappiness)
	swap := "none"
	if s.SwapTotal > 0 {
		swap = fmt.Sprintf("%s, %s in use", humanize.IBytes(s.SwapTotal), humanize.IBytes(s.SwapUsed))
	}
	sec.add("swap", swap)
	sec.add("overcommit", s.Overcommit)
	sec.add("zone reclaim", s.ZoneReclaim)
	sec.add("clock source", s.ClockSource)
	if len(s.Isolated) > 0 {
		sec.add("isolated CPUs", p.numbers(s.Isolated))
	}
	if len(s.NoHzFull) > 0 {
		sec.add("CPUs without ticks", p.numbers(s.NoHzFull))
	}
	for i, n := range s.PageCacheByNode {
		if i < len(p.s.Nodes) && n > 0 {
			sec.add(fmt.Sprintf("page cache of node %d", p.s.Nodes[i].ID), humanize.IBytes(n))
		}
	}
	for _, m := range s.Mitigations {
		name, value, ok := strings.Cut(m, ": ")
		if !ok {
			name, value = "mitigation", m
		}
		sec.add(name, value)
	}
	return sec
}
