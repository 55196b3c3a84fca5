package topo

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// linkedTree is a tree of files and, where the text begins with "-> ", symbolic links.
func linkedTree(files map[string]string) fs.FS {
	m := newMemStore()
	for name, text := range files {
		e := entry{data: text + "\n"}
		if to, ok := strings.CutPrefix(text, "-> "); ok {
			e = entry{fs.ModeSymlink, to}
		}
		if err := m.add(name, e); err != nil {
			panic(err)
		}
	}
	m.finish()
	return linked{m}
}

// under puts files into a folder.
func under(dir string, files map[string]string) map[string]string {
	all := map[string]string{}
	for name, text := range files {
		all[path.Join(dir, name)] = text
	}
	return all
}

// everyAttribute is a machine whose devices have each attribute that the kernel's documents name, later ones also.
func everyAttribute() map[string]string {
	const pci = "sys/devices/pci0000:6a/0000:6a:01.0/"
	const root = "sys/devices/platform/ACPI0017:00/root0/"
	const ib = "sys/devices/pci0000:15/0000:16:00.0/"
	return with(box(), map[string]string{
		"proc/cpuinfo": "vendor_id\t: GenuineIntel\nflags\t\t: fpu cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local mba cat_l3",

		"sys/bus/dsa/devices/dsa10": "-> ../../../devices/pci0000:6a/0000:6a:01.0/dsa10", "sys/bus/dsa/devices/wq10.3": "-> ../../../devices/pci0000:6a/0000:6a:01.0/dsa10/wq10.3",
		"sys/bus/dsa/devices/engine10.0": "-> ../../../devices/pci0000:6a/0000:6a:01.0/dsa10/engine10.0", "sys/bus/dsa/devices/engine10.1": "-> ../../../devices/pci0000:6a/0000:6a:01.0/dsa10/engine10.1",
		"sys/bus/dsa/devices/group10.1": "-> ../../../devices/pci0000:6a/0000:6a:01.0/dsa10/group10.1", "dev/dsa/wq10.3": "",
		pci + "vendor": "0x8086", pci + "device": "0x0b25",
	}, under(pci+"dsa10", map[string]string{"version": "0x100", "state": "enabled", "numa_node": "1", "max_groups": "4", "max_work_queues": "8", "max_engines": "5",
		"max_work_queues_size": "128", "max_batch_size": "1024", "max_transfer_size": "2147483648", "max_read_buffers": "96", "read_buffer_limit": "7",
		"op_cap": "0,1", "gen_cap": "0x40", "pasid_enabled": "1", "configurable": "1", "clients": "2", "errors": "0x1 0x2 0x3 0x4 ", "cmd_status": "0x9", "cdev_major": "236",
		"engine10.0/group_id": "1", "engine10.1/group_id": "-1"}),
		under(pci+"dsa10/wq10.3", map[string]string{"state": "enabled", "mode": "shared", "type": "user", "name": "ck", "driver_name": "user", "group_id": "1", "size": "16",
			"priority": "10", "threshold": "15", "block_on_fault": "1", "max_transfer_size": "2097152", "max_batch_size": "32", "ats_disable": "1", "enqcmds_retries": "64",
			"op_config": "0,3", "clients": "1", "cdev_minor": "3", "occupancy": "5"}),
		under(pci+"dsa10/group10.1", map[string]string{"engines": "engine10.0 ", "work_queues": "wq10.3 ", "traffic_class_a": "1", "traffic_class_b": "2",
			"use_read_buffer_limit": "1", "read_buffers_allowed": "96", "read_buffers_reserved": "8", "desc_progress_limit": "3", "batch_progress_limit": "2"}),

		map[string]string{"sys/bus/cxl/devices/mem0": "-> ../../../devices/pci0000:16/mem0", "sys/bus/cxl/devices/root0": "-> ../../../devices/platform/ACPI0017:00/root0",
			"sys/bus/cxl/devices/endpoint2": "-> ../../../devices/platform/ACPI0017:00/root0/endpoint2", "sys/bus/cxl/devices/decoder0.0": "-> ../../../devices/platform/ACPI0017:00/root0/decoder0.0",
			"sys/bus/cxl/devices/decoder2.0": "-> ../../../devices/platform/ACPI0017:00/root0/endpoint2/decoder2.0", "sys/bus/cxl/devices/decoder2.1": "-> ../../../devices/platform/ACPI0017:00/root0/endpoint2/decoder2.1",
			"sys/bus/cxl/devices/region0": "-> ../../../devices/platform/ACPI0017:00/root0/decoder0.0/region0", "dev/cxl/mem0": "",
			"sys/bus/dax/devices/dax0.0": "-> ../../../devices/platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax0.0", "sys/bus/dax/drivers/kmem/dax0.0": "-> ../../devices/dax0.0",
			root + "uport": "-> ../../../LNXSYSTM:00/ACPI0016:00", root + "dport1": "-> ../../../pci0000:17", root + "dport0": "-> ../../../pci0000:16"},
		under("sys/devices/pci0000:16/mem0", map[string]string{"firmware_version": "1.0", "ram/size": "0x2000000000", "pmem/size": "0x1000000000", "serial": "0xc1", "numa_node": "1",
			"label_storage_size": "4096", "payload_max": "512"}),
		under(root+"endpoint2", map[string]string{"uport": "-> ../../../../pci0000:16/mem0", "CDAT": "\x00\x01", "devtype": "cxl_endpoint"}),
		under(root+"decoder0.0", map[string]string{"devtype": "cxl_decoder_root", "start": "0x10000000", "size": "0x2000000000", "locked": "1", "target_list": "1,0", "target_type": "expander",
			"cap_pmem": "1", "cap_ram": "1", "cap_type2": "1", "cap_type3": "1", "create_pmem_region": "region1", "create_ram_region": "region1", "interleave_ways": "2", "interleave_granularity": "256"}),
		under(root+"endpoint2/decoder2.0", map[string]string{"devtype": "cxl_decoder_endpoint", "start": "0x10000000", "size": "0x1000000000", "locked": "0", "target_type": "expander", "mode": "ram",
			"dpa_resource": "0x1000", "dpa_size": "0x1000000000", "region": "region0", "interleave_ways": "2", "interleave_granularity": "256"}),
		under(root+"endpoint2/decoder2.1", map[string]string{"mode": "none", "dpa_resource": "0xffffffffffffffff", "dpa_size": "0x0000000000000000", "start": "0x0", "size": "0x0"}),
		under(root+"decoder0.0/region0", map[string]string{"uuid": "0-1", "size": "0x2000000000", "resource": "0x10000000", "interleave_ways": "2", "interleave_granularity": "256",
			"target0": "decoder2.0", "target1": "decoder3.0", "commit": "1", "mode": "ram"}),
		under(root+"decoder0.0/region0/dax_region0/dax0.0", map[string]string{"size": "137438953472", "align": "2097152", "resource": "0x10000000", "target_node": "2", "numa_node": "1"}),

		map[string]string{"sys/class/infiniband/mlx5_0": "-> ../../devices/pci0000:15/0000:16:00.0/infiniband/mlx5_0", "sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_0",
			ib + "vendor": "0x15b3", ib + "device": "0x1021", ib + "numa_node": "1", ib + "local_cpulist": "4-7", ib + "net/ib0/mtu": "2044"},
		under(ib+"infiniband/mlx5_0", map[string]string{"node_type": "1: CA", "node_guid": "e8eb:d303:0012:3456", "sys_image_guid": "e8eb:d303:0012:3456", "node_desc": "secret", "fw_ver": "28",
			"hca_type": "MT4129", "hw_rev": "1", "board_id": "MT_1", "device": "-> ../../../0000:16:00.0", "hw_counters/lifespan": "10", "hw_counters/resets": "1"}),
		under(ib+"infiniband/mlx5_0/ports/1", map[string]string{"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "lid": "0x1f", "sm_lid": "0x1", "sm_sl": "2",
			"lid_mask_count": "3", "cap_mask": "0xa6", "link_layer": "Ethernet", "gids/0": "fe80::1", "gid_attrs/types/0": "IB/RoCE v1", "gid_attrs/types/1": "RoCE v2", "gid_attrs/ndevs/0": "eth7",
			"gid_attrs/ndevs/1": "eth7", "counters/port_xmit_data": "1000", "hw_counters/out_of_sequence": "4", "hw_counters/lifespan": "10"}),

		under("sys/class/powercap/intel-rapl:0", map[string]string{"name": "package-0-die-0", "energy_uj": "5", "max_energy_range_uj": "262143328850", "enabled": "1", "constraint_0_name": "long_term",
			"constraint_0_power_limit_uw": "350000000", "constraint_0_time_window_us": "1000000", "constraint_0_max_power_uw": "400000000"}),
		map[string]string{"sys/class/powercap/intel-rapl-mmio:0/name": "package-0", "sys/class/powercap/intel-rapl:10/name": "psys", "sys/class/powercap/intel-rapl:2/name": "package-2"},
		under("sys/class/thermal/thermal_zone3", map[string]string{"type": "x86_pkg_temp", "temp": "54000", "trip_point_0_temp": "100000", "trip_point_0_type": "critical", "mode": "enabled", "policy": "step_wise"}),
		under("sys/fs/resctrl", map[string]string{"info/L3_MON/mon_features": "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes", "info/L3_MON/num_rmids": "384", "mon_groups/job/tasks": "1",
			"mon_data/mon_L3_01/mbm_total_bytes": "3", "mon_data/mon_L3_01/mbm_local_bytes": "2", "mon_data/mon_L3_01/llc_occupancy": "1",
			"mon_data/mon_L3_01/mon_sub_L3_01/mbm_total_bytes": "3", "mon_data/mon_L3_01/mon_sub_L3_01/mbm_local_bytes": "Unavailable", "mon_data/mon_L3_01/mon_sub_L3_01/llc_occupancy": "Error"}))
}

// Every attribute of devices that the documents name reaches its field, and every field of a device is told by one.
func TestEveryAttribute(t *testing.T) {
	s, err := Inspect(linkedTree(everyAttribute()), false)
	if err != nil {
		t.Fatal(err)
	}
	dsa := []Accelerator{{Name: "dsa10", Type: "dsa", State: "enabled", PCI: "0000:6a:01.0", PCIVendor: "0x8086", PCIDevice: "0x0b25", Version: "0x100", Node: 1, MaxGroups: 4, MaxQueues: 8,
		MaxEngines: 5, QueueSizes: 128, MaxTransfer: 2 << 30, MaxBatch: 1024, ReadBuffers: 96, ReadBufferLimit: 7, PASID: true, Configurable: true, OpCap: "0,1", GenCap: "0x40",
		Errors: "0x1 0x2 0x3 0x4", CmdStatus: "0x9", Clients: 2, Major: 236, Engines: 1, EngineGroups: []int{1, -1},
		Queues: []Queue{{Name: "wq10.3", State: "enabled", Mode: "shared", Type: "user", Label: "ck", Driver: "user", Group: 1, Size: 16, Threshold: 15, Priority: 10, Minor: 3,
			BlockOnFault: true, ATSDisable: true, MaxTransfer: 2 << 20, MaxBatch: 32, Clients: 1, EnqcmdsRetries: 64, Occupancy: 5, OpConfig: "0,3", Device: "/dev/dsa/wq10.3",
			Usable: true, Why: "whether /dev/dsa/wq10.3 may be written is not in a saved tree; " + advisory}},
		Groups: []Group{{Name: "group10.1", Engines: []string{"engine10.0"}, Queues: []string{"wq10.3"}, TrafficClassA: 1, TrafficClassB: 2, UseReadBufferLimit: true,
			ReadBuffersAllowed: 96, ReadBuffersReserved: 8, DescProgressLimit: 3, BatchProgressLimit: 2}}}}
	cxl := CXL{
		Memories: []CXLMemory{{Name: "mem0", Firmware: "1.0", Serial: "0xc1", RAMBytes: 128 << 30, PMEMBytes: 64 << 30, Node: 1, LabelBytes: 4096, PayloadMax: 512, Device: "/dev/cxl/mem0"}},
		Ports: []CXLPort{{Name: "root0", UPort: "ACPI0016:00", DPorts: []string{"pci0000:16", "pci0000:17"}},
			{Name: "endpoint2", Type: "cxl_endpoint", Parent: "root0", UPort: "mem0", CDAT: true}},
		Decoders: []CXLDecoder{
			{Name: "decoder0.0", Type: "cxl_decoder_root", Start: 0x10000000, Bytes: 128 << 30, Locked: true, TargetType: "expander", Targets: []int{1, 0}, Ways: 2, Granularity: 256,
				Capabilities: []string{"ram", "pmem", "type2", "type3"}, CreatePMEM: "region1", CreateRAM: "region1", DPAStart: -1, DPASize: -1},
			{Name: "decoder2.0", Type: "cxl_decoder_endpoint", Start: 0x10000000, Bytes: 64 << 30, TargetType: "expander", Ways: 2, Granularity: 256, Mode: "ram",
				DPAStart: 0x1000, DPASize: 64 << 30, Region: "region0"},
			{Name: "decoder2.1", Mode: "none", DPAStart: -1},
		},
		Regions: []CXLRegion{{Name: "region0", UUID: "0-1", Bytes: 128 << 30, Resource: 0x10000000, Ways: 2, Granularity: 256, Mode: "ram", Committed: true,
			Targets: []string{"decoder2.0", "decoder3.0"}, DAX: "dax0.0", TargetNode: 2}},
		DAX: []DAX{{Name: "dax0.0", Bytes: 128 << 30, Align: 2 << 20, Resource: 0x10000000, TargetNode: 2, Node: 1, Driver: "kmem",
			path: "sys/devices/platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax0.0"}},
	}
	rdma := []RDMA{{Device: "mlx5_0", Firmware: "28", Type: "MT4129", NodeType: "CA", Hardware: "1", Board: "MT_1", PCIVendor: "0x15b3", PCIDevice: "0x1021", Verbs: "uverbs0", Node: 1,
		LocalCPUs: []int{4, 5, 6, 7}, NetDevices: []string{"ib0", "eth7"}, Port: 1, State: "ACTIVE", Physical: "LinkUp", Link: "Ethernet", Rate: "400 Gb/sec (4X NDR)", RateGbps: 400,
		LID: "0x1f", SMLID: "0x1", LIDMask: 3, SMSL: 2, Capabilities: "0xa6", GIDTypes: []string{"IB/RoCE v1", "RoCE v2"},
		Counters: map[string]int64{"port_xmit_data": 1000}, HWCounters: map[string]int64{"out_of_sequence": 4}}}
	power := []PowerZone{{"intel-rapl:0", "package-0-die-0", true, 5, 262143328850, []PowerLimit{{"long_term", 350, 400, 1}}},
		{Zone: "intel-rapl:2", Name: "package-2", Energy: -1}, {Zone: "intel-rapl:10", Name: "psys", Energy: -1}}
	thermal := []ThermalZone{{"thermal_zone3", "x86_pkg_temp", "enabled", "step_wise", 54, true, []Trip{{"critical", 100}}}}
	resctrl := &Resctrl{[]string{"llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"}, 384, 1, []ResctrlDomain{{1, -1, 3, 2, 1}, {1, 1, 3, -1, -1}}}
	flags := []string{"cqm_llc", "cqm_occup_llc", "cqm_mbm_total", "cqm_mbm_local", "cat_l3", "mba"}
	for _, c := range []struct {
		name      string
		got, want any
	}{{"DSA", s.DSA, dsa}, {"CXL", s.CXL, cxl}, {"RDMA", s.RDMA, rdma}, {"power", s.Power, power}, {"thermal", s.Thermal, thermal}, {"resctrl", s.Resctrl, resctrl},
		{"flags", s.ResctrlFlags, flags}} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, c.got, c.want)
		}
	}
	// A field that is zero in all of them would be one that no attribute tells.
	told := map[string]bool{}
	for _, v := range []any{s.DSA, s.CXL, s.RDMA, s.Power, s.Thermal, s.Resctrl} {
		fields(reflect.ValueOf(v), told)
	}
	for name, is := range told {
		if !is {
			t.Errorf("nothing tells %s", name)
		}
	}
	for _, m := range s.Missing {
		if strings.Contains(m, "decoder") || strings.Contains(m, "hw_counters") || strings.Contains(m, "resctrl") {
			t.Errorf("a sentence on what is as it should be: %s", m)
		}
	}
}

// The memory of a node as HMAT, the tiers and the caches in front of it tell of it.
func TestMemoryAttributes(t *testing.T) {
	const node = "sys/devices/system/node/node1/"
	s, err := Inspect(linkedTree(with(box(), map[string]string{
		"sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 1024 kB", node + "meminfo": "Node 1 MemTotal: 2048 kB\nNode 1 MemFree: 1 kB",
		node + "access0/initiators/node0": "-> ../../../node0", node + "access0/initiators/node1": "-> ../../../node1", node + "access0/initiators/read_latency": "110",
		node + "access0/initiators/write_latency": "120", node + "access0/initiators/read_bandwidth": "30000", node + "access0/initiators/write_bandwidth": "20000",
		node + "access1/initiators/node0": "-> ../../../node0", node + "access1/initiators/write_latency": "7",
		node + "memory_side_cache/index1/size": "17179869184", node + "memory_side_cache/index1/line_size": "64", node + "memory_side_cache/index1/indexing": "0",
		node + "memory_side_cache/index1/write_policy": "1", node + "memory_side_cache/index2/indexing": "1", node + "memory_side_cache/index2/write_policy": "0",
		"sys/devices/virtual/memory_tiering/memory_tier4/nodelist": "0", "sys/devices/virtual/memory_tiering/memory_tier22/nodelist": "1",
		node + "distance": "12 10", "sys/devices/system/node/node0/distance": "10 11"})), false)
	if err != nil {
		t.Fatal(err)
	}
	want := NodeMemory{Kind: DRAM, Why: "has CPUs", Tier: 22, Package: 1, Access: [2]*Access{{[]int{0, 1}, 110, 120, 30000, 20000}, {Initiators: []int{0}, WriteLatency: 7}},
		Caches: []SideCache{{Index: 1, Bytes: 16 << 30, LineBytes: 64, Direct: true}, {Index: 2, WriteBack: true}}}
	if !reflect.DeepEqual(s.Memory[1], want) {
		t.Errorf("\n got %+v %+v %+v\nwant %+v %+v %+v", s.Memory[1], s.Memory[1].Access[0], s.Memory[1].Access[1], want, want.Access[0], want.Access[1])
	}
	if s.Memory[0].Tier != 4 || s.Memory[0].Access != [2]*Access{} {
		t.Errorf("node 0: %+v", s.Memory[0])
	}
	if want := [][]int{{10, 11}, {12, 10}}; !reflect.DeepEqual(s.Distance, want) {
		t.Errorf("distances %v, want %v", s.Distance, want)
	}
	packages := []Package{{ID: 0, CPUs: []int{0, 1, 2, 3}, Cores: 2, Nodes: []int{0}}, {ID: 1, CPUs: []int{4, 5, 6, 7}, Cores: 2, Nodes: []int{1}}}
	if !reflect.DeepEqual(s.Packages, packages) {
		t.Errorf("packages %+v, want %+v", s.Packages, packages)
	}
}

// fields notes which fields of structs are other than zero somewhere.
func fields(v reflect.Value, told map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		fields(v.Elem(), told)
	case reflect.Slice:
		for i := range v.Len() {
			fields(v.Index(i), told)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Name() + "." + v.Type().Field(i).Name
			told[name] = told[name] || !v.Field(i).IsZero()
			fields(v.Field(i), told)
		}
	}
}

// unread are the attributes of the hand-made trees that no Survey has, each with its reason.
var unread = map[string]string{
	"node_guid": identifies, "sys_image_guid": identifies, "node_desc": identifies, "gids/0": identifies,
	"dev": "follows from major and minor", "modalias": "follows from the name", "region0/devtype": "follows from the name",
	"available_policies": "what could be chosen, not what is", "intel-rapl/enabled": "of all zones together; each has its own",
	"resctrl/mode": groups, "schemata": groups, "cpus": groups, "cpus_list": groups, "last_cmd_status": groups,
	"cbm_mask": groups, "min_cbm_bits": groups, "num_closids": groups, "shareable_bits": groups, "bandwidth_gran": groups, "delay_linear": groups,
	"min_bandwidth": groups, "thread_throttle_mode": groups, "max_threshold_occupancy": "when a counter may be used again",
}

const (
	identifies = "says which machine it is and nothing of its speed"
	groups     = "of limits of groups of processes, not of counters"
)

// seen is a file system that notes what is opened.
type seen struct {
	fs.FS
	names map[string]bool
}

func (s seen) Open(name string) (fs.File, error) {
	s.names[name] = true
	return s.FS.Open(name)
}

func (s seen) ReadLink(name string) (string, error) { return fs.ReadLink(s.FS, name) }
func (s seen) Lstat(name string) (fs.FileInfo, error) {
	return fs.Lstat(s.FS, name)
}
func (s seen) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(s.FS, name) }

// Every attribute of a device in the hand-made trees is read, but for those that are left out for a reason.
func TestNoAttributeIsPassedOver(t *testing.T) {
	stale := maps.Clone(unread)
	for _, c := range []struct {
		name string
		dirs []string
	}{
		{"dev-dsa", []string{"sys/bus/dsa/devices"}},
		{"dev-cxl", []string{"sys/bus/cxl/devices", "sys/bus/dax/devices"}},
		{"dev-power", []string{"sys/class/powercap", "sys/class/thermal", "sys/class/infiniband", "sys/class/infiniband_verbs", "sys/fs/resctrl"}},
	} {
		fsys, err := Open(testkit.Data(t, fmt.Sprintf("topology/trees/%s.tar.gz", c.name)))
		if err != nil {
			t.Fatal(err)
		}
		r := seen{fsys, map[string]bool{}}
		if _, err := Inspect(r, false); err != nil {
			t.Fatal(err)
		}
		files := 0
		// walk goes over the files of a folder and of the devices that it links to, as deep as their own folders go.
		var walk func(name string, depth int)
		walk = func(name string, depth int) {
			es, err := fs.ReadDir(fsys, name)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range es {
				at := path.Join(name, e.Name())
				st, err := fs.Stat(fsys, at)
				switch {
				case err != nil:
					t.Errorf("%s: %v", at, err)
				case st.IsDir():
					// What belongs to a device stands on the bus, too, under its own name.
					if e.Type()&fs.ModeSymlink != 0 && depth > 0 || depth > 0 && slices.ContainsFunc([]string{"wq", "engine", "group", "decoder", "endpoint", "port1", "region", "dax", "intel-rapl:"},
						func(p string) bool { return strings.HasPrefix(e.Name(), p) }) {
						continue
					}
					walk(at, depth+1)
				default:
					files++
					key := e.Name()
					if unread[key] == "" {
						key = path.Base(name) + "/" + key
					}
					delete(stale, key)
					if !r.names[at] && unread[key] == "" {
						t.Errorf("%s: %s is not read", c.name, at)
					}
				}
			}
		}
		for _, d := range c.dirs {
			walk(d, 0)
		}
		if files < 20 {
			t.Errorf("%s: %d attributes", c.name, files)
		}
		t.Logf("%s: %d attributes", c.name, files)
	}
	for name, reason := range stale {
		t.Errorf("%s is left out (%s), but is nowhere", name, reason)
	}
}

// Firmware that fills HMAT's class 1 alone, that of CPUs, tells kinds of memory as well as one that fills class 0.
func TestKindFromEitherClass(t *testing.T) {
	for _, class := range []string{"access0", "access1"} {
		files := map[string]string{
			"sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 1024 kB", "sys/devices/system/node/node2/meminfo": "Node 2 MemTotal: 2048 kB",
			"sys/devices/system/node/node2/cpulist": "", "sys/devices/system/node/online": "0-2",
		}
		for node, bandwidth := range map[string]string{"node0": "100000", "node2": "400000"} {
			dir := "sys/devices/system/node/" + node + "/"
			for _, empty := range []string{"access0", "access1"} { // both are there, one says nothing
				files[dir+empty+"/initiators/read_bandwidth"] = "0"
			}
			files[dir+class+"/initiators/read_bandwidth"], files[dir+class+"/initiators/read_latency"] = bandwidth, "120"
		}
		s, err := Inspect(linkedTree(with(box(), files)), false)
		if err != nil {
			t.Fatal(err)
		}
		if m := s.Memory[len(s.Memory)-1]; s.Nodes[len(s.Nodes)-1].ID != 2 || m.Kind != HBM {
			t.Errorf("%s: node %d is %q (%s), want %s", class, s.Nodes[len(s.Nodes)-1].ID, m.Kind, m.Why, HBM)
		}
	}
}
