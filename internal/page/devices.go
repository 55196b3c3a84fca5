package page

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"ck/internal/humanize"
	"ck/internal/topo"
)

func (p maker) accelerators() section {
	sec := section{name: "accelerators"}
	for _, a := range p.s.DSA {
		batch := "none"
		if a.MaxBatch > 0 {
			batch = strconv.Itoa(a.MaxBatch)
		}
		engines := ""
		if slices.ContainsFunc(a.EngineGroups, func(g int) bool { return g >= 0 }) {
			engines = strings.ReplaceAll(strings.Trim(fmt.Sprint(a.EngineGroups), "[]"), "-1", "none")
		}
		sec.addThing(a.Name, "type", a.Type, "state", a.State, "PCI", strings.Join(strings.Fields(a.PCI+" "+a.PCIVendor+" "+a.PCIDevice), " "),
			"version", a.Version, "node", a.Node, "groups", a.MaxGroups, "queues", a.MaxQueues,
			"engines", a.MaxEngines, "engines in groups", a.Engines, "groups of engines", engines, "entries", a.QueueSizes, "transfer", humanize.IBytesTold(a.MaxTransfer), "batch", batch,
			"read buffers", a.ReadBuffers, "read buffer limit", a.ReadBufferLimit, "shared virtual memory", a.PASID, "configurable", a.Configurable,
			"clients", a.Clients, "major", a.Major, "operations", p.mask(a.OpCap), "capabilities", a.GenCap, "command status", a.CmdStatus, "errors", p.mask(a.Errors))
		for _, g := range a.Groups {
			if !p.full && len(g.Engines)+len(g.Queues) == 0 {
				continue
			}
			sec.addThing(g.Name, "engines", humanize.OrNone(strings.Join(g.Engines, " ")), "queues", humanize.OrNone(strings.Join(g.Queues, " ")),
				"traffic class A", g.TrafficClassA, "traffic class B", g.TrafficClassB, "uses the read buffer limit", g.UseReadBufferLimit,
				"read buffers allowed", g.ReadBuffersAllowed, "reserved", g.ReadBuffersReserved, "descriptors in progress", g.DescProgressLimit,
				"batches in progress", g.BatchProgressLimit)
		}
		for _, q := range a.Queues {
			why := "because"
			if q.Usable {
				why = "but"
			}
			sec.addThing(q.Name, "state", q.State, "mode", q.Mode, "type", q.Type, "label", q.Label, "driver", q.Driver, "group", q.Group,
				"entries", q.Size, "threshold", q.Threshold, "priority", q.Priority, "minor", q.Minor, "in use", q.Occupancy,
				"block on fault", q.BlockOnFault, "address translation", !q.ATSDisable, "retries", q.EnqcmdsRetries, "transfer", humanize.IBytesTold(q.MaxTransfer),
				"batch", q.MaxBatch, "clients", q.Clients, "operations", p.mask(q.OpConfig), "device", q.Device, "usable", q.Usable, why, q.Why)
		}
	}
	return sec
}

// mask is a map of bits, for people without the words of zeros that it begins with.
func (p maker) mask(s string) string {
	const word, register = "00000000,", "0x0000000000000000 "
	for !p.full && (strings.HasPrefix(s, word) || strings.HasPrefix(s, register)) {
		_, s, _ = strings.Cut(strings.Replace(s, " ", ",", 1), ",")
	}
	return s
}

// cxl leaves serial numbers and UUIDs out: pages are pasted into public places.
func (p maker) cxl() section {
	sec, c := section{name: "CXL and DAX"}, &p.s.CXL
	for _, m := range c.Memories {
		f := sec.addThing(m.Name, "volatile", humanize.IBytes(m.RAMBytes), "persistent", humanize.IBytes(m.PMEMBytes), "firmware", m.Firmware, "node", m.Node)
		if m.LabelBytes > 0 {
			f.add("labels", humanize.IBytes(m.LabelBytes))
		}
		if m.PayloadMax > 0 {
			f.add("mailbox", humanize.IBytes(m.PayloadMax))
		}
		f.add("device", m.Device)
	}
	for _, t := range c.Ports {
		f := sec.addThing(t.Name, "type", t.Type, "below", t.Parent, "upstream", t.UPort, "downstream", strings.Join(t.DPorts, " "))
		if t.CDAT {
			f.add("describes its speed", true)
		}
		if t.Parent == "" && t.Type == "" {
			f.value = "a root of the bus"
		}
	}
	for _, d := range c.Decoders {
		f := sec.addThing(d.Name, "type", d.Type, "address", address(d.Start), "size", humanize.IBytesTold(d.Bytes), "locked", d.Locked, "for", d.TargetType,
			"targets", strings.Join(humanize.Ranges(d.Targets), " "), "ways", d.Ways, "granularity", humanize.IBytesTold(int64(d.Granularity)),
			"can", strings.Join(d.Capabilities, " "),
			"next region", strings.Join(strings.Fields(d.CreateRAM+" "+d.CreatePMEM), " "), "mode", d.Mode)
		if d.DPAStart >= 0 && d.DPASize > 0 {
			f.add("on the device", address(d.DPAStart)+", "+humanize.IBytes(d.DPASize))
		}
		f.add("region", d.Region)
	}
	for _, r := range c.Regions {
		sec.addThing(r.Name, "size", humanize.IBytesTold(r.Bytes), "address", address(r.Resource), "ways", r.Ways, "granularity", humanize.IBytesTold(int64(r.Granularity)), "mode", r.Mode,
			"committed", r.Committed, "targets", strings.Join(r.Targets, " "), "dax device", r.DAX, "as node", r.TargetNode)
	}
	for _, d := range c.DAX {
		sec.addThing(d.Name, "size", humanize.IBytesTold(d.Bytes), "alignment", humanize.IBytesTold(d.Align), "address", address(d.Resource), "driver", d.Driver, "node", d.Node, "target node", d.TargetNode)
	}
	return sec
}

// address is a physical address, "" if it is not told.
func address(n int64) string {
	if n < 0 {
		return ""
	}
	return fmt.Sprintf("%#x", n)
}

func (p maker) rdma() section {
	sec := section{name: "RDMA"}
	for _, r := range p.s.RDMA {
		f := sec.addThing(fmt.Sprintf("%s port %d", r.Device, r.Port), "state", r.State, "physical", r.Physical, "link", r.Link, "rate", r.Rate,
			"node", r.Node, "near CPUs", strings.Join(humanize.Ranges(r.LocalCPUs), ","), "type", r.Type, "node type", r.NodeType, "hardware", r.Hardware,
			"board", r.Board, "PCI", strings.TrimSpace(r.PCIVendor+" "+r.PCIDevice), "firmware", r.Firmware, "verbs", r.Verbs,
			"network devices", strings.Join(r.NetDevices, " "), "LID", r.LID, "LID mask", r.LIDMask, "manager's LID", r.SMLID,
			"service level", r.SMSL, "capabilities", r.Capabilities, "GID types", strings.Join(r.GIDTypes, " and "))
		for _, counters := range []map[string]int64{r.Counters, r.HWCounters} {
			for _, name := range slices.Sorted(maps.Keys(counters)) {
				f.add(name, strconv.FormatInt(counters[name], 10))
			}
		}
	}
	return sec
}

func (p maker) power() section {
	sec := section{name: "power"}
	for _, z := range p.s.Power {
		energy := "may not be read"
		if z.Energy >= 0 {
			energy = fmt.Sprintf("%.1f J", float64(z.Energy)/1e6)
		}
		f := sec.addThing(z.Zone, "name", z.Name, "enabled", z.Enabled, "energy", energy)
		if z.Range > 0 {
			f.add("wraps at", fmt.Sprintf("%.1f J", float64(z.Range)/1e6))
		}
		for _, l := range z.Limits {
			text := watts(l.Watts)
			if l.Seconds > 0 {
				text += fmt.Sprintf(" over %.4g s", l.Seconds)
			}
			if l.MaxWatts > 0 {
				text += ", at most " + watts(l.MaxWatts)
			}
			f.add("limit "+l.Name, text)
		}
	}
	return sec
}

func watts(w float64) string {
	if w <= 0 {
		return "not told"
	}
	return fmt.Sprintf("%.4g W", w)
}

func (p maker) thermal() section {
	sec := section{name: "temperatures"}
	for _, z := range p.s.Thermal {
		text := "may not be read"
		if z.Readable {
			text = fmt.Sprintf("%.1f °C", z.Celsius)
		}
		f := sec.addThing(z.Zone, "type", z.Type, "is", text, "mode", z.Mode, "policy", z.Policy)
		for i, t := range z.Trips {
			f.add(fmt.Sprintf("trip %d", i), fmt.Sprintf("%s at %.1f °C", t.Type, t.Celsius))
		}
	}
	return sec
}

func (p maker) resctrl() section {
	r, sec := p.s.Resctrl, section{name: "resctrl"}
	sec.add("the CPU has", strings.Join(p.s.ResctrlFlags, " "))
	if r == nil {
		return sec
	}
	sec.add("counters", humanize.OrNot(strings.Join(r.Features, " ")))
	if r.RMIDs > 0 {
		sec.add("groups", fmt.Sprintf("%d of at most %d are counted apart", r.Groups, r.RMIDs))
	}
	for _, d := range r.Domains {
		sec.addThing(domainName(d), "total", counted(d.Total), "local", counted(d.Local), "occupancy", counted(d.Occupancy))
	}
	return sec
}

func domainName(d topo.ResctrlDomain) string {
	name := fmt.Sprintf("L3 %d", d.L3)
	if d.Node >= 0 {
		name += fmt.Sprintf(" node %d", d.Node)
	}
	return name
}

// counted is a counter of bytes; a negative one is not there.
func counted(n int64) string {
	if n < 0 {
		return "unavailable"
	}
	return humanize.IBytes(n)
}
