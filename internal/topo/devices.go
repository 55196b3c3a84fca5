package topo

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxDevices bounds each kind of device; more are noted and left out.
const maxDevices = 4096

// entries is the names in a folder, sorted; none if it is absent.
func (r tree) entries(dir string) []string {
	es, err := fs.ReadDir(r.FS, dir)
	if err != nil {
		return nil
	}
	if len(es) > maxDevices {
		r.notes.add("%s has %d entries; %d were read", dir, len(es), maxDevices)
		es = es[:maxDevices]
	}
	names := make([]string, len(es))
	for i, e := range es {
		names[i] = e.Name()
	}
	// 2 comes before 10.
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	return names
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

// size is a number in C's notation (0x1000 or 4096), or def.
func (r tree) size(name string, def int64) int64 {
	s := r.text(name)
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		if s != "" {
			r.notes.add("%s is %.40q, which is no number", name, s)
		}
		return def
	}
	return n
}

// word is a file's content if that is short and printable.
func (r tree) word(name string) string {
	s := r.text(name)
	if len(s) > 200 || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f || c == 0xfffd }) {
		r.notes.add("%s is no text: %.40q", name, s)
		return ""
	}
	return s
}

// truth is a 1.
func (r tree) truth(name string) bool { return r.int(name, 0) != 0 }

const dsaDir = "sys/bus/dsa/devices"

// accelerators reads DSA and IAA devices (Documentation/ABI/stable/sysfs-driver-dma-idxd).
func (r tree) accelerators(s *Survey, live bool) {
	names := r.entries(dsaDir)
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
		for _, n := range names {
			switch at := path.Join(dsaDir, n) + "/"; {
			case strings.HasPrefix(n, "wq"+number+"."):
				a.Queues = append(a.Queues, r.queue(&a, n, at, live))
			case strings.HasPrefix(n, "engine"+number+"."):
				if r.int(at+"group_id", -1) >= 0 {
					a.Engines++
				}
			case strings.HasPrefix(n, "group"+number+"."):
				a.Groups = append(a.Groups, Group{Name: n, Engines: strings.Fields(r.word(at + "engines")), Queues: strings.Fields(r.word(at + "work_queues")),
					TrafficClassA: r.int(at+"traffic_class_a", -1), TrafficClassB: r.int(at+"traffic_class_b", -1),
					UseReadBufferLimit: r.truth(at + "use_read_buffer_limit"),
					ReadBuffersAllowed: r.int(at+"read_buffers_allowed", -1), ReadBuffersReserved: r.int(at+"read_buffers_reserved", -1),
					DescProgressLimit: r.int(at+"desc_progress_limit", -1), BatchProgressLimit: r.int(at+"batch_progress_limit", -1)})
			}
		}
		s.DSA = append(s.DSA, a)
	}
	slices.SortStableFunc(s.DSA, func(a, b Accelerator) int {
		m, _ := strconv.Atoi(a.Name[3:])
		n, _ := strconv.Atoi(b.Name[3:])
		return m - n
	})
}

func (r tree) queue(a *Accelerator, name, d string, live bool) Queue {
	q := Queue{Name: name, State: r.word(d + "state"), Mode: r.word(d + "mode"), Type: r.word(d + "type"), Label: r.word(d + "name"),
		Driver: r.word(d + "driver_name"), Group: r.int(d+"group_id", -1), Size: r.int(d+"size", 0), Threshold: r.int(d+"threshold", 0),
		Priority: r.int(d+"priority", 0), Minor: r.int(d+"cdev_minor", -1), BlockOnFault: r.truth(d + "block_on_fault"),
		ATSDisable: r.truth(d + "ats_disable"), MaxTransfer: r.number(d+"max_transfer_size", 0), MaxBatch: r.int(d+"max_batch_size", 0),
		Clients: r.int(d+"clients", 0), EnqcmdsRetries: r.int(d+"enqcmds_retries", 0), OpConfig: r.word(d + "op_config"), Occupancy: -1}
	if n, err := strconv.Atoi(r.text(d + "occupancy")); err == nil { // absent and errors are alike: not counted
		q.Occupancy = n
	}
	folder := map[string]string{"dsa": "dsa", "iax": "iax"}[a.Type]
	device := path.Join("/dev", folder, name)
	node := r.has(device[1:])
	// A saved tree has no /dev: there the class folder tells that the device was there.
	if node || !live && r.has(path.Join("sys/class", folder, name)) {
		q.Device = device
	}
	q.Usable, q.Why = usable(a, &q, node, live)
	return q
}

// usable tells whether this process may submit to a queue, else the first thing in the way and the command that removes it. Commands
// are those of accel-config.
func usable(a *Accelerator, q *Queue, node, live bool) (bool, string) {
	dev := a.Name + "/" + q.Name
	switch {
	case !a.PASID:
		return false, "shared virtual memory is off (pasid_enabled 0): boot with intel_iommu=on,sm_on and switch VT-d on in the firmware"
	case a.State != "enabled" && (q.Type != "user" || q.Size == 0):
		return false, fmt.Sprintf("%s is %s and the queue is not configured: accel-config config-engine %s/engine%s.0 --group-id=0; accel-config config-wq %s --group-id=0 --mode=shared --type=user --wq-size=16 --threshold=15 --priority=10 --name=ck --driver-name=user; accel-config enable-device %s; accel-config enable-wq %s",
			a.Name, orUnknown(a.State), a.Name, a.Name[3:], dev, a.Name, dev)
	case a.State != "enabled":
		return false, fmt.Sprintf("%s is %s: accel-config enable-device %s; accel-config enable-wq %s", a.Name, orUnknown(a.State), a.Name, dev)
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
	case !live:
		return true, fmt.Sprintf("whether %s may be written is not in a saved tree", q.Device)
	}
	return true, ""
}

func orUnknown(s string) string {
	if s == "" {
		return "in no known state"
	}
	return s
}

const cxlDir = "sys/bus/cxl/devices"

// cxl reads the CXL bus (Documentation/ABI/testing/sysfs-bus-cxl) and the dax bus.
func (r tree) cxl(s *Survey) {
	c := &s.CXL
	c.DAX = r.dax()
	for _, name := range r.entries(cxlDir) {
		d := path.Join(cxlDir, name) + "/"
		switch strings.TrimRight(name, "0123456789.") {
		case "mem":
			c.Memories = append(c.Memories, CXLMemory{Name: name, Firmware: r.word(d + "firmware_version"), Serial: r.word(d + "serial"),
				RAMBytes: r.size(d+"ram/size", 0), PMEMBytes: r.size(d+"pmem/size", 0), Node: r.int(d+"numa_node", -1),
				LabelBytes: r.size(d+"label_storage_size", 0), PayloadMax: r.size(d+"payload_max", 0)})
		case "root", "port", "endpoint":
			parent := path.Base(path.Dir(r.target(path.Join(cxlDir, name))))
			if !strings.HasPrefix(parent, "root") && !strings.HasPrefix(parent, "port") {
				parent = ""
			}
			c.Ports = append(c.Ports, CXLPort{Name: name, Type: r.word(d + "devtype"), Parent: parent})
		case "decoder":
			c.Decoders = append(c.Decoders, r.decoder(name, d))
		case "region":
			c.Regions = append(c.Regions, r.region(name, d, c.DAX))
		}
	}
}

// target is where a link in /sys points to, "" if it is none.
func (r tree) target(name string) string {
	t, err := fs.ReadLink(r.FS, name)
	if err != nil {
		return ""
	}
	return path.Join(path.Dir(name), t)
}

func (r tree) decoder(name, d string) CXLDecoder {
	e := CXLDecoder{Name: name, Type: r.word(d + "devtype"), Start: r.size(d+"start", 0), Bytes: r.size(d+"size", 0), Locked: r.truth(d + "locked"),
		TargetType: r.word(d + "target_type"), Ways: r.int(d+"interleave_ways", 0), Granularity: r.int(d+"interleave_granularity", 0),
		Mode: r.word(d + "mode"), DPAStart: r.size(d+"dpa_resource", -1), DPASize: r.size(d+"dpa_size", -1), Region: r.word(d + "region")}
	// The order of the targets is that of interleaving.
	for _, t := range strings.Split(r.word(d+"target_list"), ",") {
		if n, err := strconv.Atoi(t); err == nil {
			e.Targets = append(e.Targets, n)
		}
	}
	for _, what := range []string{"ram", "pmem", "type2", "type3"} {
		if r.truth(d + "cap_" + what) {
			e.Capabilities = append(e.Capabilities, what)
		}
	}
	return e
}

func (r tree) region(name, d string, dax []DAX) CXLRegion {
	g := CXLRegion{Name: name, UUID: r.word(d + "uuid"), Bytes: r.size(d+"size", 0), Resource: r.size(d+"resource", -1),
		Ways: r.int(d+"interleave_ways", 0), Granularity: r.int(d+"interleave_granularity", 0), Mode: r.word(d + "mode"),
		Committed: r.truth(d + "commit"), TargetNode: -1}
	for _, i := range r.numbered(strings.TrimSuffix(d, "/"), "target") {
		g.Targets = append(g.Targets, r.word(fmt.Sprintf("%starget%d", d, i)))
	}
	for _, x := range dax {
		if slices.Contains(strings.Split(x.path, "/"), name) && strings.Contains(x.path, "/dax_region") && !strings.Contains(x.path, "/ndbus") {
			g.DAX = x.Name
			if x.Driver == "kmem" {
				g.TargetNode = x.TargetNode
			}
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
		if dev := r.text(path.Join("sys/class/infiniband_verbs", v, "ibdev")); dev != "" {
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
			s.RDMA = append(s.RDMA, r.port(dev, n, fmt.Sprintf("%sports/%d/", d, n)))
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
	ndevs := d + "gid_attrs/ndevs"
	for _, i := range r.entries(ndevs) {
		if n := r.word(ndevs + "/" + i); n != "" && !slices.Contains(p.NetDevices, n) && len(p.NetDevices) < 64 {
			p.NetDevices = append(slices.Clip(p.NetDevices), n)
		}
	}
	types := d + "gid_attrs/types"
	for _, i := range r.entries(types) { // empty slots give an error
		if t := r.word(types + "/" + i); t != "" && !slices.Contains(p.GIDTypes, t) && len(p.GIDTypes) < 8 {
			p.GIDTypes = append(p.GIDTypes, t)
		}
	}
	for _, c := range r.entries(d + "counters") {
		if n, err := strconv.ParseInt(r.text(d+"counters/"+c), 10, 64); err == nil && len(p.Counters) < 100 {
			if p.Counters == nil {
				p.Counters = map[string]int64{}
			}
			p.Counters[c] = n
		}
	}
	return p
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
	slices.SortStableFunc(s.Power, func(a, b PowerZone) int { return strings.Compare(a.Zone, b.Zone) })
}

// thermal reads thermal zones, and for AMD's CPUs, which have none, the sensor of the k10temp driver.
func (r tree) thermal(s *Survey) {
	const dir = "sys/class/thermal"
	celsius := func(name string) (float64, bool) { // millidegrees; may be busy
		n, err := strconv.ParseInt(r.text(name), 10, 32)
		return float64(n) / 1e3, err == nil
	}
	for _, i := range r.numbered(dir, "thermal_zone") {
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
	for _, i := range r.numbered("sys/class/hwmon", "hwmon") {
		d := fmt.Sprintf("sys/class/hwmon/hwmon%d/", i)
		if r.text(d+"name") == "k10temp" {
			z := ThermalZone{Zone: fmt.Sprintf("hwmon%d", i), Type: "k10temp"}
			z.Celsius, z.Readable = celsius(d + "temp1_input")
			s.Thermal = append(s.Thermal, z)
		}
	}
}

const resctrlDir = "sys/fs/resctrl"

// resctrl reads what a mounted resctrl monitors (Documentation/x86/resctrl.rst).
func (r tree) resctrl(s *Survey) {
	if !r.has(resctrlDir + "/info") {
		return
	}
	s.Resctrl = &Resctrl{Features: strings.Fields(r.text(resctrlDir + "/info/L3_MON/mon_features"))}
	const dir = resctrlDir + "/mon_data"
	domain := func(l3, node int, d string) {
		count := func(name string) int64 { // a number, "Unavailable" or "Error"
			n, err := strconv.ParseInt(r.text(d+"/"+name), 10, 64)
			if err != nil {
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
				if node, err := strconv.Atoi(n); err == nil && node >= 0 {
					domain(l3, node, dir+"/"+name+"/"+sub)
				}
			}
		}
	}
}
