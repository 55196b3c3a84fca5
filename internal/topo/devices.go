package topo

import (
	"cmp"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of what a machine has, many times what is there; more is noted and left out.
const (
	maxDevices  = 2048 // of each kind of device
	maxPorts    = 1024 // of all RDMA devices
	maxCounters = 100  // of a port, in one folder
	maxTargets  = 64   // of a decoder, a region, a port; also caches of a CPU, vulnerabilities
	maxWord     = 256  // bytes of a value; the longest, a mitigation's, have some 150
)

// entries is the names in a folder, 2 before 10; none if it is absent. Names of devices stand in commands that people paste, so that those
// with what a shell or a terminal obeys are left out; drivers give none such.
func (r tree) entries(dir string) []string {
	es := r.readDir(dir)
	if len(es) > maxDevices {
		r.notes.add("%s has %d entries; %d were read", dir, len(es), maxDevices)
		es = es[:maxDevices]
	}
	var names []string
	for _, e := range es {
		if n := e.Name(); len(n) <= maxWord && !strings.ContainsFunc(n, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune("\"'`$;&|<>(){}[]*?!\\~#", c) }) {
			names = append(names, n)
		} else {
			r.notes.add("%s/%s has a name that no driver gives, and was left out", dir, n)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	return names
}

// devices is the numbers of a folder's entries prefix0, prefix1, …
func (r tree) devices(dir, prefix string) []int {
	ids := r.numbered(dir, prefix)
	if len(ids) > maxDevices {
		r.notes.add("%s has %d entries; %d were read", dir, len(ids), maxDevices)
		ids = ids[:maxDevices]
	}
	return ids
}

// has tells whether something is there.
func (r tree) has(name string) bool {
	_, err := fs.Stat(r.FS, name)
	return err == nil
}

// int is a number that fits an int32, or def.
func (r tree) int(name string, def int) int {
	n := r.number(name, int64(def))
	if n < -1<<31 || n > 1<<31-1 {
		r.notes.add("%s is %d, which makes no sense", name, n)
		return def
	}
	return int(n)
}

// size is a number without a sign in C's notation (0x1000 or 4096), or def. All ones are how drivers print that there is none.
func (r tree) size(name string, def int64) int64 {
	s := r.text(name)
	n, err := strconv.ParseUint(s, 0, 64)
	switch {
	case s == "" || err == nil && n == math.MaxUint64:
		return def
	case err != nil || n > math.MaxInt64:
		r.notes.add("%s is %.40q, which is no number", name, s)
		return def
	}
	return int64(n)
}

// word is a file's content if that is short and printable.
func (r tree) word(name string) string {
	s := r.text(name)
	if len(s) > maxWord || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f || c == 0xfffd }) {
		r.notes.add("%s is no text: %.40q", name, s)
		return ""
	}
	return s
}

// truth is a 1.
func (r tree) truth(name string) bool { return r.int(name, 0) != 0 }

// target is where a link in /sys points to, "" if it is none.
func (r tree) target(name string) string {
	t, err := fs.ReadLink(r.FS, name)
	if err != nil || len(t) > maxName {
		return ""
	}
	return path.Join(path.Dir(name), t)
}

// leads is the name of what a link in /sys points to, "" if it is none.
func (r tree) leads(name string) string {
	t := r.target(name)
	if base := path.Base(t); t != "" && len(base) <= maxWord {
		return strings.Clone(base)
	}
	return ""
}

// byNumber orders names such as intel-rapl:2:0 and dsa10 by the numbers in them.
func byNumber(a, b string) int {
	digits := func(s string) (int, string) {
		end := 0
		for end < len(s) && s[end] >= '0' && s[end] <= '9' {
			end++
		}
		return end, strings.TrimLeft(s[:end], "0")
	}
	for len(a) > 0 && len(b) > 0 {
		m, x := digits(a)
		n, y := digits(b)
		if m > 0 && n > 0 {
			if c := cmp.Or(len(x)-len(y), strings.Compare(x, y)); c != 0 {
				return c
			}
			a, b = a[m:], b[n:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

const dsaDir = "sys/bus/dsa/devices"

// accelerators reads DSA and IAA devices (Documentation/ABI/stable/sysfs-driver-dma-idxd). What belongs to a device has its number:
// wq2.0, engine2.1, group2.0.
func (r tree) accelerators(s *Survey, live bool) {
	names := r.entries(dsaDir)
	parts := map[string][]string{} // by "wq2"
	for _, name := range names {
		if of, _, ok := strings.Cut(name, "."); ok {
			parts[of] = append(parts[of], name)
		}
	}
	for _, name := range names {
		kind := strings.TrimRight(name, "0123456789")
		number := name[len(kind):]
		if kind != "dsa" && kind != "iax" || number == "" {
			continue
		}
		d := path.Join(dsaDir, name) + "/"
		a := Accelerator{Name: name, Type: kind, State: r.word(d + "state"), Version: r.word(d + "version"), Node: r.int(d+"numa_node", -1),
			MaxGroups: r.int(d+"max_groups", 0), MaxQueues: r.int(d+"max_work_queues", 0), MaxEngines: r.int(d+"max_engines", 0),
			QueueSizes: r.int(d+"max_work_queues_size", 0), MaxTransfer: r.number(d+"max_transfer_size", 0), MaxBatch: r.int(d+"max_batch_size", 0),
			ReadBuffers:     r.int(d+"max_read_buffers", r.int(d+"max_tokens", 0)),
			ReadBufferLimit: r.int(d+"read_buffer_limit", r.int(d+"token_limit", 0)),
			PASID:           r.truth(d + "pasid_enabled"), Configurable: r.truth(d + "configurable"),
			OpCap: r.word(d + "op_cap"), GenCap: r.word(d + "gen_cap"), Errors: r.word(d + "errors"), CmdStatus: r.word(d + "cmd_status"),
			Clients: r.int(d+"clients", 0), Major: r.int(d+"cdev_major", -1)}
		if at := r.target(path.Join(dsaDir, name)); at != "" {
			pci := path.Dir(at)
			a.PCI, a.PCIVendor, a.PCIDevice = strings.Clone(path.Base(pci)), r.word(pci+"/vendor"), r.word(pci+"/device")
		}
		for _, n := range parts["engine"+number] {
			group := r.int(path.Join(dsaDir, n, "group_id"), -1)
			a.EngineGroups = append(a.EngineGroups, group)
			if group >= 0 {
				a.Engines++
			}
		}
		for _, n := range parts["group"+number] {
			a.Groups = append(a.Groups, r.group(n, path.Join(dsaDir, n)+"/"))
		}
		for _, n := range parts["wq"+number] {
			a.Queues = append(a.Queues, r.queue(&a, n, path.Join(dsaDir, n)+"/", live))
		}
		s.DSA = append(s.DSA, a)
	}
	slices.SortStableFunc(s.DSA, func(a, b Accelerator) int { return byNumber(a.Name[3:], b.Name[3:]) })
}

// group reads a group. Read buffers were called tokens before Linux 5.17.
func (r tree) group(name, d string) Group {
	return Group{Name: name, Engines: strings.Fields(r.word(d + "engines")), Queues: strings.Fields(r.word(d + "work_queues")),
		TrafficClassA: r.int(d+"traffic_class_a", -1), TrafficClassB: r.int(d+"traffic_class_b", -1),
		UseReadBufferLimit:  r.truth(d+"use_read_buffer_limit") || r.truth(d+"use_token_limit"),
		ReadBuffersAllowed:  r.int(d+"read_buffers_allowed", r.int(d+"tokens_allowed", -1)),
		ReadBuffersReserved: r.int(d+"read_buffers_reserved", r.int(d+"tokens_reserved", -1)),
		DescProgressLimit:   r.int(d+"desc_progress_limit", -1), BatchProgressLimit: r.int(d+"batch_progress_limit", -1)}
}

func (r tree) queue(a *Accelerator, name, d string, live bool) Queue {
	q := Queue{Name: name, State: r.word(d + "state"), Mode: r.word(d + "mode"), Type: r.word(d + "type"), Label: r.word(d + "name"),
		Driver: r.word(d + "driver_name"), Group: r.int(d+"group_id", -1), Size: r.int(d+"size", 0), Threshold: r.int(d+"threshold", 0),
		Priority: r.int(d+"priority", 0), Minor: r.int(d+"cdev_minor", -1), BlockOnFault: r.truth(d + "block_on_fault"),
		ATSDisable: r.truth(d + "ats_disable"), MaxTransfer: r.number(d+"max_transfer_size", 0), MaxBatch: r.int(d+"max_batch_size", 0),
		Clients: r.int(d+"clients", 0), EnqcmdsRetries: r.int(d+"enqcmds_retries", 0), OpConfig: r.word(d + "op_config"),
		Occupancy: r.quiet().int(d+"occupancy", -1)} // an error where the device does not count
	device := path.Join("/dev", a.Type, name)
	node := r.has(device[1:])
	// A saved tree has no /dev: there the class folder tells that the device was there.
	if node || !live && r.has(path.Join("sys/class", a.Type, name)) {
		q.Device = device
	}
	q.Usable, q.Why = usable(a, &q, node, live)
	return q
}

// usable tells whether this process may submit to a queue, and what it has to know; else the first thing in the way and the command that
// removes it. Commands are those of accel-config.
func usable(a *Accelerator, q *Queue, node, live bool) (bool, string) {
	dev := a.Name + "/" + q.Name
	engine := "" // a device without an engine in a group cannot be enabled
	if a.Engines == 0 {
		engine = fmt.Sprintf("accel-config config-engine %s/engine%s.0 --group-id=%d; ", a.Name, a.Name[3:], max(0, q.Group))
	}
	switch {
	case !a.PASID:
		return false, "shared virtual memory is off (pasid_enabled 0): boot with intel_iommu=on,sm_on and switch VT-d on in the firmware"
	case !a.Configurable && q.Type != "user":
		return false, fmt.Sprintf("of type %s, and the device's configuration is fixed (configurable 0)", orUnknown(q.Type))
	case a.State != "enabled" && (q.Type != "user" || q.Size == 0):
		return false, fmt.Sprintf("%s is %s and the queue is not configured: %saccel-config config-wq %s --group-id=0 --mode=shared --type=user --wq-size=16 --threshold=15 --priority=10 --name=ck --driver-name=user; accel-config enable-device %s; accel-config enable-wq %s",
			a.Name, orUnknown(a.State), engine, dev, a.Name, dev)
	case a.State != "enabled":
		return false, fmt.Sprintf("%s is %s: %saccel-config enable-device %s; accel-config enable-wq %s", a.Name, orUnknown(a.State), engine, a.Name, dev)
	case q.State != "enabled" && q.Type != "user":
		return false, fmt.Sprintf("disabled, of type %s: accel-config config-wq %s --group-id=0 --mode=shared --type=user --wq-size=16 --threshold=15 --priority=10 --name=ck --driver-name=user; accel-config enable-wq %s",
			orUnknown(q.Type), dev, dev)
	case q.State != "enabled":
		return false, fmt.Sprintf("%s: accel-config enable-wq %s", orUnknown(q.State), dev)
	case q.Type != "user":
		return false, fmt.Sprintf("of type %s, not for programs: accel-config disable-wq %s; accel-config config-wq %s --type=user --name=ck --driver-name=user; accel-config enable-wq %s",
			orUnknown(q.Type), dev, dev, dev)
	case q.Device == "":
		return false, fmt.Sprintf("there is no %s: load the driver (modprobe idxd) or, in a container, pass the device in", path.Join("/dev", a.Type, q.Name))
	case q.Mode == "dedicated" && q.Clients > 0:
		return false, "dedicated, and another process has it"
	case live && node && unix.Access(q.Device, unix.R_OK|unix.W_OK) != nil:
		return false, fmt.Sprintf("no permission for %s: sudo setfacl -m u:$USER:rw %s", q.Device, q.Device)
	}
	var but []string
	if !live {
		but = append(but, fmt.Sprintf("whether %s may be written is not in a saved tree", q.Device))
	}
	if slices.Contains([]string{"0x0b25", "0x0cfe"}, a.PCIDevice) { // user_submission_safe of the driver, since Linux 6.9
		but = append(but, "kernels that know of INTEL-SA-01084 let programs without CAP_SYS_RAWIO submit by write, not by mapping the portal")
	}
	return true, strings.Join(but, "; ")
}

func orUnknown(s string) string {
	if s == "" {
		return "in no known state"
	}
	return s
}

const cxlDir = "sys/bus/cxl/devices"

// cxl reads the CXL bus (Documentation/ABI/testing/sysfs-bus-cxl) and the dax bus.
func (r tree) cxl(s *Survey, live bool) {
	c := &s.CXL
	c.DAX = r.dax()
	onRegion := map[string]*DAX{} // the last device by the region that it stands on
	for i := range c.DAX {
		x := &c.DAX[i]
		if !strings.Contains(x.path, "/dax_region") || strings.Contains(x.path, "/ndbus") {
			continue
		}
		for part := range strings.SplitSeq(x.path, "/") {
			if strings.HasPrefix(part, "region") {
				onRegion[part] = x
			}
		}
	}
	for _, name := range r.entries(cxlDir) {
		d := path.Join(cxlDir, name) + "/"
		switch strings.TrimRight(name, "0123456789.") {
		case "mem":
			m := CXLMemory{Name: name, Firmware: r.word(d + "firmware_version"), Serial: r.word(d + "serial"),
				RAMBytes: r.size(d+"ram/size", 0), PMEMBytes: r.size(d+"pmem/size", 0), Node: r.int(d+"numa_node", -1),
				LabelBytes: r.size(d+"label_storage_size", 0), PayloadMax: r.size(d+"payload_max", 0)}
			// A saved tree has no /dev: there the device's number tells that it was there.
			if r.has("dev/cxl/"+name) || !live && r.has(d+"dev") {
				m.Device = "/dev/cxl/" + name
			}
			c.Memories = append(c.Memories, m)
		case "root", "port", "endpoint":
			c.Ports = append(c.Ports, r.cxlPort(name, d))
		case "decoder":
			c.Decoders = append(c.Decoders, r.decoder(name, d))
		case "region":
			c.Regions = append(c.Regions, r.region(name, d, onRegion[name]))
		}
	}
}

func (r tree) cxlPort(name, d string) CXLPort {
	p := CXLPort{Name: name, Type: r.word(d + "devtype"), UPort: r.leads(d + "uport"), CDAT: r.has(d + "CDAT")}
	if above := path.Base(path.Dir(r.target(path.Join(cxlDir, name)))); strings.HasPrefix(above, "root") || strings.HasPrefix(above, "port") {
		p.Parent = strings.Clone(above)
	}
	for i, n := range r.numbered(strings.TrimSuffix(d, "/"), "dport") {
		if i == maxTargets {
			r.notes.add("%s has more than %d downstream ports, of which no more were read", strings.TrimSuffix(d, "/"), maxTargets)
			break
		}
		p.DPorts = append(p.DPorts, r.leads(fmt.Sprintf("%sdport%d", d, n)))
	}
	return p
}

func (r tree) decoder(name, d string) CXLDecoder {
	e := CXLDecoder{Name: name, Type: r.word(d + "devtype"), Start: r.size(d+"start", 0), Bytes: r.size(d+"size", 0), Locked: r.truth(d + "locked"),
		TargetType: r.word(d + "target_type"), Ways: r.int(d+"interleave_ways", 0), Granularity: r.int(d+"interleave_granularity", 0),
		CreatePMEM: r.word(d + "create_pmem_region"), CreateRAM: r.word(d + "create_ram_region"),
		Mode: r.word(d + "mode"), DPAStart: r.size(d+"dpa_resource", -1), DPASize: r.size(d+"dpa_size", -1), Region: r.word(d + "region")}
	if list := r.word(d + "target_list"); list != "" { // in the order of interleaving
		for t := range strings.SplitSeq(list, ",") {
			n, err := strconv.ParseUint(t, 10, 31)
			if err != nil {
				r.notes.add("%starget_list is %.40q, which is no list of numbers", d, list)
				break
			}
			e.Targets = append(e.Targets, int(n))
		}
	}
	for _, what := range []string{"ram", "pmem", "type2", "type3"} {
		if r.truth(d + "cap_" + what) {
			e.Capabilities = append(e.Capabilities, what)
		}
	}
	return e
}

// region reads a region; dax is the device that stands on it, or nil.
func (r tree) region(name, d string, dax *DAX) CXLRegion {
	g := CXLRegion{Name: name, UUID: r.word(d + "uuid"), Bytes: r.size(d+"size", 0), Resource: r.size(d+"resource", -1),
		Ways: r.int(d+"interleave_ways", 0), Granularity: r.int(d+"interleave_granularity", 0), Mode: r.word(d + "mode"),
		Committed: r.truth(d + "commit"), TargetNode: -1}
	for k, i := range r.numbered(strings.TrimSuffix(d, "/"), "target") {
		if k == maxTargets {
			r.notes.add("%s has more than %d targets, of which no more were read", strings.TrimSuffix(d, "/"), maxTargets)
			break
		}
		g.Targets = append(g.Targets, r.word(fmt.Sprintf("%starget%d", d, i)))
	}
	if dax != nil {
		g.DAX = dax.Name
		if dax.Driver == "kmem" {
			g.TargetNode = dax.TargetNode
		}
	}
	return g
}

const daxDir = "sys/bus/dax/devices"

func (r tree) dax() []DAX {
	var all []DAX
	drivers := map[string]string{}
	for _, driver := range r.entries("sys/bus/dax/drivers") {
		for _, name := range r.entries("sys/bus/dax/drivers/" + driver) {
			drivers[name] = driver
		}
	}
	for _, name := range r.entries(daxDir) {
		d := path.Join(daxDir, name) + "/"
		all = append(all, DAX{Name: name, Bytes: r.size(d+"size", 0), Align: r.size(d+"align", r.size(d+"dax_region/align", 0)),
			Resource: r.size(d+"resource", -1), TargetNode: r.int(d+"target_node", -1), Node: r.int(d+"numa_node", -1),
			Driver: drivers[name], path: r.target(path.Join(daxDir, name))})
	}
	return all
}

const rdmaDir = "sys/class/infiniband"

// rdma reads InfiniBand and RoCE devices (Documentation/ABI/stable/sysfs-class-infiniband). GUIDs, GIDs and the node's description are
// left where they are: they name a machine and say nothing of its speed.
func (r tree) rdma(s *Survey) {
	verbs := map[string]string{}
	for _, v := range r.entries("sys/class/infiniband_verbs") {
		if dev := r.word(path.Join("sys/class/infiniband_verbs", v, "ibdev")); dev != "" {
			verbs[dev] = v
		}
	}
	for _, name := range r.entries(rdmaDir) {
		d := path.Join(rdmaDir, name) + "/"
		dev := RDMA{Device: name, Firmware: r.word(d + "fw_ver"), Type: r.word(d + "hca_type"), NodeType: after(r.word(d + "node_type")),
			Hardware: r.word(d + "hw_rev"), Board: r.word(d + "board_id"), PCIVendor: r.word(d + "device/vendor"), PCIDevice: r.word(d + "device/device"),
			Verbs: verbs[name], Node: r.int(d+"device/numa_node", -1), NetDevices: r.entries(d + "device/net")}
		dev.LocalCPUs, _ = r.list(d + "device/local_cpulist")
		ports := r.numbered(d+"ports", "")
		if len(ports) == 0 {
			s.RDMA = append(s.RDMA, dev)
		}
		for _, n := range ports {
			if len(s.RDMA) >= maxPorts {
				r.notes.add("%s has more than %d ports; those from port %d of %s on were left out", rdmaDir, maxPorts, n, name)
				return
			}
			p := r.port(dev, n, fmt.Sprintf("%sports/%d/", d, n))
			if p.HWCounters == nil {
				p.HWCounters = r.counters(d + "hw_counters")
			}
			s.RDMA = append(s.RDMA, p)
		}
	}
}

func (r tree) port(p RDMA, n int, d string) RDMA {
	p.Port, p.State, p.Physical, p.Link = n, after(r.word(d+"state")), after(r.word(d+"phys_state")), r.word(d+"link_layer")
	p.Rate = r.word(d + "rate")
	if number, _, ok := strings.Cut(p.Rate, " Gb/sec"); ok {
		if g, err := strconv.ParseFloat(number, 64); err == nil && g >= 0 && g < 1e9 {
			p.RateGbps = g
		}
	}
	p.LID, p.SMLID, p.Capabilities = r.word(d+"lid"), r.word(d+"sm_lid"), r.word(d+"cap_mask")
	p.LIDMask, p.SMSL = r.int(d+"lid_mask_count", 0), r.int(d+"sm_sl", 0)
	p.NetDevices = r.distinct(d+"gid_attrs/ndevs", slices.Clip(p.NetDevices))
	p.GIDTypes = r.distinct(d+"gid_attrs/types", nil)
	p.Counters, p.HWCounters = r.counters(d+"counters"), r.counters(d+"hw_counters")
	return p
}

// distinct adds what the files of a folder say, each once. Files of empty slots of a table of GIDs give an error when read.
func (r tree) distinct(dir string, words []string) []string {
	for _, name := range r.entries(dir) {
		w := r.quiet().word(dir + "/" + name)
		if w == "" || slices.Contains(words, w) {
			continue
		}
		if len(words) >= maxTargets {
			r.notes.add("%s says more than %d things, of which no more were read", dir, maxTargets)
			break
		}
		words = append(words, w)
	}
	return words
}

// counters reads the numbers in a folder; nil if there are none. What is no number is no counter: lifespan says how long values are kept.
func (r tree) counters(dir string) map[string]int64 {
	var all map[string]int64
	for _, name := range r.entries(dir) {
		n, err := strconv.ParseInt(r.quiet().text(dir+"/"+name), 10, 64)
		if err != nil || name == "lifespan" {
			continue
		}
		if len(all) == maxCounters {
			r.notes.add("%s has more than %d counters, of which no more were read", dir, maxCounters)
			break
		}
		if all == nil {
			all = map[string]int64{}
		}
		all[name] = n
	}
	return all
}

// after is the word of "4: ACTIVE".
func after(s string) string {
	if _, word, ok := strings.Cut(s, ": "); ok {
		return word
	}
	return s
}

const powerDir = "sys/class/powercap"

// power reads RAPL zones (Documentation/power/powercap/powercap.rst). intel-rapl-mmio tells of the same zones again.
func (r tree) power(s *Survey) {
	for _, zone := range r.entries(powerDir) {
		if !strings.HasPrefix(zone, "intel-rapl:") {
			continue
		}
		d := path.Join(powerDir, zone) + "/"
		z := PowerZone{Zone: zone, Name: r.word(d + "name"), Enabled: r.truth(d + "enabled"), Energy: r.number(d+"energy_uj", -1),
			Range: r.number(d+"max_energy_range_uj", 0)}
		for i := range 8 {
			c := fmt.Sprintf("%sconstraint_%d_", d, i)
			name := r.word(c + "name")
			if name == "" {
				break
			}
			z.Limits = append(z.Limits, PowerLimit{Name: name, Watts: float64(r.number(c+"power_limit_uw", 0)) / 1e6,
				MaxWatts: float64(r.number(c+"max_power_uw", 0)) / 1e6, Seconds: float64(r.number(c+"time_window_us", 0)) / 1e6})
		}
		s.Power = append(s.Power, z)
	}
	slices.SortStableFunc(s.Power, func(a, b PowerZone) int { return byNumber(a.Zone, b.Zone) })
}

// thermal reads thermal zones, and for AMD's CPUs, which have none, the sensor of the k10temp driver.
func (r tree) thermal(s *Survey) {
	const dir = "sys/class/thermal"
	celsius := func(name string) (float64, bool) { // millidegrees; an error while the sensor is busy or off
		n, err := strconv.ParseInt(r.quiet().text(name), 10, 32)
		return float64(n) / 1e3, err == nil
	}
	for _, i := range r.devices(dir, "thermal_zone") {
		zone := fmt.Sprintf("thermal_zone%d", i)
		d := path.Join(dir, zone) + "/"
		z := ThermalZone{Zone: zone, Type: r.word(d + "type"), Mode: r.word(d + "mode"), Policy: r.word(d + "policy")}
		z.Celsius, z.Readable = celsius(d + "temp")
		for k := range 16 {
			t := fmt.Sprintf("%strip_point_%d_", d, k)
			kind := r.word(t + "type")
			if kind == "" {
				break
			}
			if c, ok := celsius(t + "temp"); ok && c > -273 { // -274 C: not set
				z.Trips = append(z.Trips, Trip{kind, c})
			}
		}
		s.Thermal = append(s.Thermal, z)
	}
	for _, i := range r.devices("sys/class/hwmon", "hwmon") {
		d := fmt.Sprintf("sys/class/hwmon/hwmon%d/", i)
		if r.text(d+"name") == "k10temp" {
			z := ThermalZone{Zone: fmt.Sprintf("hwmon%d", i), Type: "k10temp"}
			z.Celsius, z.Readable = celsius(d + "temp1_input")
			s.Thermal = append(s.Thermal, z)
		}
	}
}

const resctrlDir = "sys/fs/resctrl"

// resctrl reads what a mounted resctrl monitors (Documentation/x86/resctrl.rst), and what the CPU could count.
func (r tree) resctrl(s *Survey, cpuinfo string) {
	flags, _ := field(cpuinfo, "flags")
	has := strings.Fields(flags)
	for _, f := range []string{"cqm_llc", "cqm_occup_llc", "cqm_mbm_total", "cqm_mbm_local", "cat_l3", "cat_l2", "cdp_l3", "mba"} {
		if slices.Contains(has, f) {
			s.ResctrlFlags = append(s.ResctrlFlags, f)
		}
	}
	if !r.has(resctrlDir + "/info") {
		return
	}
	const info = resctrlDir + "/info/L3_MON/"
	s.Resctrl = &Resctrl{RMIDs: r.int(info+"num_rmids", 0), Groups: len(r.readDir(resctrlDir + "/mon_groups"))}
	for f := range strings.FieldsSeq(r.text(info + "mon_features")) {
		if len(s.Resctrl.Features) == maxTargets || len(f) > maxWord {
			r.notes.add("%smon_features makes no sense after %d words", info, len(s.Resctrl.Features))
			break
		}
		s.Resctrl.Features = append(s.Resctrl.Features, f)
	}
	const dir = resctrlDir + "/mon_data"
	domain := func(l3, node int, d string) {
		count := func(name string) int64 { // a number, "Unavailable" or "Error"
			n, err := strconv.ParseInt(r.quiet().text(d+"/"+name), 10, 64)
			if err != nil || n < 0 {
				return -1
			}
			return n
		}
		s.Resctrl.Domains = append(s.Resctrl.Domains, ResctrlDomain{l3, node, count("mbm_total_bytes"), count("mbm_local_bytes"), count("llc_occupancy")})
	}
	for _, name := range r.entries(dir) {
		number, ok := strings.CutPrefix(name, "mon_L3_")
		l3, err := strconv.Atoi(number)
		if !ok || err != nil || l3 < 0 {
			continue
		}
		domain(l3, -1, dir+"/"+name)
		for _, sub := range r.entries(dir + "/" + name) {
			if n, ok := strings.CutPrefix(sub, "mon_sub_L3_"); ok {
				if node, err := strconv.Atoi(n); err == nil && node >= 0 && len(s.Resctrl.Domains) < maxDevices {
					domain(l3, node, dir+"/"+name+"/"+sub)
				}
			}
		}
	}
}
