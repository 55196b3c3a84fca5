package topo

import (
	"reflect"
	"strings"
	"testing"

	"ck/internal/testkit"
)

// Every attribute of the hand-made trees of devices.
func TestAccelerators(t *testing.T) {
	s := surveyOf(t, testkit.Data(t, "topology/trees/dev-dsa.tar.gz"))
	if len(s.DSA) != 3 {
		t.Fatalf("%d devices", len(s.DSA))
	}
	d := s.DSA[0]
	queues, groups := d.Queues, d.Groups
	d.Queues, d.Groups = nil, nil
	const ops = "00000000,00000000,00000000,00000000,00000000,00000000,00000001,003f03ff"
	want := Accelerator{Name: "dsa0", Type: "dsa", State: "enabled", PCI: "0000:6a:01.0", PCIVendor: "0x8086", PCIDevice: "0x0b25", Version: "0x100", Node: 0, MaxGroups: 4, MaxQueues: 8, MaxEngines: 4, QueueSizes: 128,
		MaxTransfer: 2 << 30, MaxBatch: 1024, ReadBuffers: 96, PASID: true, Configurable: true, OpCap: ops, GenCap: "0x40915f0107",
		Errors: "0x0000000000000000 0x0000000000000000 0x0000000000000000 0x0000000000000000", CmdStatus: "0x0", Clients: 1, Major: 236, Engines: 1, EngineGroups: []int{0, -1, -1, -1}}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("dsa0:\n got %+v\nwant %+v", d, want)
	}
	if len(queues) != 8 || len(groups) != 4 {
		t.Fatalf("%d queues, %d groups", len(queues), len(groups))
	}
	if want := (Queue{Name: "wq0.0", State: "enabled", Mode: "shared", Type: "user", Label: "ck_shared", Size: 16, Threshold: 15, Priority: 10,
		BlockOnFault: true, MaxTransfer: 2 << 20, MaxBatch: 32, Clients: 1, Occupancy: -1, OpConfig: ops, Device: "/dev/dsa/wq0.0",
		Usable: true, Why: "whether /dev/dsa/wq0.0 may be written is not in a saved tree; " + advisory}); queues[0] != want {
		t.Errorf("wq0.0:\n got %+v\nwant %+v", queues[0], want)
	}
	if q := queues[2]; q.Usable || q.Why != "disabled: accel-config enable-wq dsa0/wq0.2" || q.Minor != -1 || q.Device != "" {
		t.Errorf("wq0.2: %+v", q)
	}
	if q := queues[3]; q.Usable || !strings.HasPrefix(q.Why, "disabled, of type none: accel-config config-wq dsa0/wq0.3 --group-id=0") || !strings.HasSuffix(q.Why, "; accel-config enable-wq dsa0/wq0.3") {
		t.Errorf("wq0.3: %+v", q)
	}
	if want := (Group{Name: "group0.0", Engines: []string{"engine0.0"}, Queues: []string{"wq0.0", "wq0.1", "wq0.2"}, TrafficClassA: 1, TrafficClassB: 1,
		ReadBuffersAllowed: 96}); !reflect.DeepEqual(groups[0], want) {
		t.Errorf("group0.0:\n got %+v\nwant %+v", groups[0], want)
	}
	if a := s.DSA[1]; a.Name != "iax1" || a.Type != "iax" || a.MaxBatch != 0 || a.MaxEngines != 8 || a.Engines != 0 || len(a.Queues) != 8 ||
		!strings.Contains(a.Queues[0].Why, "accel-config config-engine iax1/engine1.0 --group-id=0") || !strings.HasSuffix(a.Queues[0].Why, "accel-config enable-device iax1; accel-config enable-wq iax1/wq1.0") {
		t.Errorf("iax1: %+v", a)
	}
}

const advisory = "kernels that know of INTEL-SA-01084 let programs without CAP_SYS_RAWIO submit by write, not by mapping the portal"

// What is in the way of using a queue, and the command that removes it.
func TestUsable(t *testing.T) {
	a := Accelerator{Name: "dsa3", Type: "dsa", State: "enabled", PASID: true, Configurable: true, Engines: 1}
	q := Queue{Name: "wq3.1", State: "enabled", Type: "user", Mode: "shared", Size: 8, Device: "/dev/dsa/wq3.1"}
	for name, c := range map[string]struct {
		change     func(a *Accelerator, q *Queue)
		node, live bool
		ok         bool
		why        string
	}{
		"no pasid": {func(a *Accelerator, q *Queue) { a.PASID = false }, true, false, false, "intel_iommu=on,sm_on"},
		"no engine": {func(a *Accelerator, q *Queue) { a.State, a.Engines, q.Group = "disabled", 0, 2 }, true, false, false,
			"dsa3 is disabled: accel-config config-engine dsa3/engine3.0 --group-id=2; accel-config enable-device dsa3; accel-config enable-wq dsa3/wq3.1"},
		"fixed": {func(a *Accelerator, q *Queue) { a.Configurable, q.Type = false, "kernel" }, true, false, false,
			"of type kernel, and the device's configuration is fixed (configurable 0)"},
		"fixed and off": {func(a *Accelerator, q *Queue) { a.Configurable, q.State = false, "disabled" }, true, false, false, "disabled: accel-config enable-wq dsa3/wq3.1"},
		"device off":    {func(a *Accelerator, q *Queue) { a.State = "disabled" }, true, false, false, "dsa3 is disabled: accel-config enable-device dsa3; accel-config enable-wq dsa3/wq3.1"},
		"queue off":     {func(a *Accelerator, q *Queue) { q.State = "disabled" }, true, false, false, "disabled: accel-config enable-wq dsa3/wq3.1"},
		"kernel's":      {func(a *Accelerator, q *Queue) { q.Type = "kernel" }, true, false, false, "of type kernel, not for programs: accel-config disable-wq dsa3/wq3.1"},
		"no device":     {func(a *Accelerator, q *Queue) { q.Device = "" }, false, false, false, "there is no /dev/dsa/wq3.1"},
		"taken":         {func(a *Accelerator, q *Queue) { q.Mode, q.Clients = "dedicated", 1 }, true, false, false, "another process has it"},
		"no permission": {func(a *Accelerator, q *Queue) { q.Device = "/nowhere/wq3.1" }, true, true, false, "no permission for /nowhere/wq3.1: sudo setfacl"},
		"saved":         {func(a *Accelerator, q *Queue) {}, true, false, true, "not in a saved tree"},
		"fine, but":     {func(a *Accelerator, q *Queue) { a.PCIDevice, q.Device = "0x0cfe", "/dev/null" }, true, true, true, advisory},
		"fine":          {func(a *Accelerator, q *Queue) { q.Device = "/dev/null" }, true, true, true, ""},
	} {
		a, q := a, q
		c.change(&a, &q)
		if ok, why := usable(&a, &q, c.node, c.live); ok != c.ok || !strings.Contains(why, c.why) || c.why == "" && why != "" {
			t.Errorf("%s: %v %q, want %v %q", name, ok, why, c.ok, c.why)
		}
	}
}

func TestCXL(t *testing.T) {
	s := surveyOf(t, testkit.Data(t, "topology/trees/dev-cxl.tar.gz"))
	const size, start = 128 << 30, 0x10080000000
	want := CXL{
		Memories: []CXLMemory{{Name: "mem0", Firmware: "1.0", Serial: "0xc100e2e0", RAMBytes: size, PayloadMax: 512, Device: "/dev/cxl/mem0"}},
		Ports:    []CXLPort{{Name: "port1", Parent: "root0"}, {Name: "root0"}, {Name: "endpoint2", Parent: "port1"}},
		Decoders: []CXLDecoder{
			{Name: "decoder0.0", Type: "cxl_decoder_root", Start: start, Bytes: size, Locked: true, TargetType: "expander", Targets: []int{0}, Ways: 1,
				Granularity: 256, Capabilities: []string{"ram", "type3"}, CreateRAM: "region1", DPAStart: -1, DPASize: -1},
			{Name: "decoder2.0", Type: "cxl_decoder_endpoint", Start: start, Bytes: size, TargetType: "expander", Ways: 1, Granularity: 256, Mode: "ram",
				DPASize: size, Region: "region0"},
		},
		Regions: []CXLRegion{{Name: "region0", Bytes: size, Resource: start, Ways: 1, Granularity: 256, Mode: "ram", Committed: true,
			Targets: []string{"decoder2.0"}, DAX: "dax0.0", TargetNode: 2}},
		DAX: []DAX{{Name: "dax0.0", Bytes: size, Align: 2 << 20, Resource: start, TargetNode: 2, Driver: "kmem",
			path: "sys/devices/platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax0.0"}},
	}
	for i := range s.CXL.Ports {
		s.CXL.Ports[i].Type = "" // this tree gives none, later kernels do
	}
	if !reflect.DeepEqual(s.CXL, want) {
		t.Errorf("\n got %+v\nwant %+v", s.CXL, want)
	}
	if m := s.Memory[2]; m.Kind != CXLm || m.Why != "dax0.0 on a CXL region targets this node" || m.Tier != 22 || m.Package != s.Packages[0].ID || s.Memory[0].Tier != 4 {
		t.Errorf("node 2: %+v; node 0: %+v", m, s.Memory[0])
	}
}

func TestPower(t *testing.T) {
	s := surveyOf(t, testkit.Data(t, "topology/trees/dev-power.tar.gz"))
	if want := (PowerZone{"intel-rapl:0", "package-0", true, 262142328850, 262143328850,
		[]PowerLimit{{"long_term", 350, 350, 0.999424}, {"short_term", 420, 764, 0.007808}}}); !reflect.DeepEqual(s.Power[0], want) {
		t.Errorf("package-0: %+v, want %+v", s.Power[0], want)
	}
	if want := (ThermalZone{"thermal_zone0", "acpitz", "disabled", "step_wise", 27.8, true, []Trip{{"critical", 105}}}); !reflect.DeepEqual(s.Thermal[0], want) && s.Thermal[0].Mode != "enabled" {
		t.Errorf("thermal_zone0: %+v, want %+v", s.Thermal[0], want)
	}
	if len(s.Thermal[1].Trips) != 0 {
		t.Errorf("a trip at -274 C: %+v", s.Thermal[1])
	}
	if want := (RDMA{Device: "mlx5_0", Firmware: "28.39.1002", Type: "MT4129", NodeType: "CA", Hardware: "0", Board: "MT_0000000838", PCIVendor: "0x15b3",
		PCIDevice: "0x1021", Verbs: "uverbs0", LocalCPUs: []int{0, 1, 2, 3, 8, 9, 10, 11}, Port: 1, State: "ACTIVE", Physical: "LinkUp", Link: "InfiniBand",
		Rate: "400 Gb/sec (4X NDR)", RateGbps: 400, LID: "0x1f", SMLID: "0x1", Capabilities: "0xa651e84a", GIDTypes: []string{"IB/RoCE v1"},
		Counters: map[string]int64{"port_rcv_data": 2000, "port_xmit_data": 1000, "port_xmit_wait": 0, "symbol_error": 0}}); len(s.RDMA) != 1 || !reflect.DeepEqual(s.RDMA[0], want) {
		t.Errorf("RDMA:\n got %+v\nwant %+v", s.RDMA, want)
	}
	if want := (&Resctrl{[]string{"llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"}, 384, 0,
		[]ResctrlDomain{{0, -1, 123456789012, 120000000000, 8912896}, {1, -1, 987654321, 987000000, -1}}}); !reflect.DeepEqual(s.Resctrl, want) {
		t.Errorf("resctrl %+v, want %+v", s.Resctrl, want)
	}
	sub := Survey{}
	fake(map[string]string{"sys/fs/resctrl/info/L3_MON/mon_features": "llc_occupancy", "sys/fs/resctrl/mon_data/mon_L3_00/llc_occupancy": "7",
		"sys/fs/resctrl/mon_data/mon_L3_00/mon_sub_L3_01/llc_occupancy": "3"}).resctrl(&sub, "")
	if want := []ResctrlDomain{{0, -1, -1, -1, 7}, {0, 1, -1, -1, 3}}; !reflect.DeepEqual(sub.Resctrl.Domains, want) {
		t.Errorf("SNC: %+v, want %+v", sub.Resctrl.Domains, want)
	}
	amd := Survey{}
	fake(map[string]string{"sys/class/hwmon/hwmon2/name": "k10temp", "sys/class/hwmon/hwmon2/temp1_input": "45250", "sys/class/hwmon/hwmon1/name": "nvme",
		"sys/class/thermal/thermal_zone0/type": "acpitz", "sys/class/thermal/thermal_zone0/temp": ""}).thermal(&amd)
	if want := []ThermalZone{{Zone: "thermal_zone0", Type: "acpitz"}, {Zone: "hwmon2", Type: "k10temp", Celsius: 45.25, Readable: true}}; !reflect.DeepEqual(amd.Thermal, want) {
		t.Errorf("AMD: %+v, want %+v", amd.Thermal, want)
	}
}

// Switches, limits and pools, as kernels write them.
func TestSettings(t *testing.T) {
	s, err := Inspect(fake(with(box(), map[string]string{
		"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never", "sys/kernel/mm/transparent_hugepage/defrag": "always defer [defer+madvise] madvise never",
		"proc/sys/kernel/numa_balancing": "1", "proc/sys/vm/swappiness": "60", "proc/sys/vm/overcommit_memory": "0", "proc/sys/vm/zone_reclaim_mode": "0",
		"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave", "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance",
		"sys/devices/system/cpu/cpu0/cpufreq/scaling_driver": "intel_pstate", "sys/devices/system/cpu/intel_pstate/no_turbo": "1", "sys/devices/system/cpu/smt/control": "on",
		"sys/devices/system/cpu/vulnerabilities/meltdown": "Mitigation: PTI", "sys/devices/system/cpu/vulnerabilities/l1tf": "Not affected",
		"sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc", "sys/devices/system/cpu/isolated": "2-3", "sys/devices/system/cpu/umwait_control/max_time": "100000", "sys/devices/system/cpu/nohz_full": "(null)",
		"proc/meminfo":                          "MemTotal: 16777216 kB\nMemFree: 1048576 kB\nMemAvailable: 8388608 kB\nSwapTotal: 2048 kB\nSwapFree: 1024 kB",
		"proc/self/limits":                      "Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         8388608              8388608              bytes     \nMax address space         unlimited            unlimited            bytes",
		"sys/devices/system/node/node1/meminfo": "Node 1 MemTotal: 2048 kB\nNode 1 FilePages: 512 kB",
		"sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages":      "10",
		"sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages":    "4",
		"sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages":   "0",
		"sys/devices/system/node/node0/hugepages/hugepages-1048576kB/free_hugepages": "0",
		"proc/cpuinfo": "vendor_id\t: GenuineIntel\nmodel name\t: X\nflags\t\t: fpu hypervisor avx2 fma bmi1 bmi2 f16c amx_tile amx_int8 amx_bf16", "proc/version": "Linux version 5.15.0-1 (x) y",
	})).FS, false)
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{THP: "madvise", THPDefrag: "defer+madvise", NUMABalancing: "1", Governor: "performance,powersave", Driver: "intel_pstate", Turbo: "off",
		SMTControl: "on", UMWaitMax: "100000", Swappiness: "60", SwapTotal: 2 << 20, SwapUsed: 1 << 20, Overcommit: "0", ZoneReclaim: "0", Memlock: 8 << 20, AddressSpace: -1,
		Mitigations: []string{"meltdown: PTI"}, ClockSource: "tsc", Hypervisor: true, Isolated: []int{2, 3}, PageCacheByNode: []int64{0, 512 << 10}}
	if !reflect.DeepEqual(s.Settings, want) {
		t.Errorf("\n got %+v\nwant %+v", s.Settings, want)
	}
	if want := []HugePool{{0, 2 << 20, 10, 4}, {0, 1 << 30, 0, 0}}; !reflect.DeepEqual(s.HugePages, want) {
		t.Errorf("huge pages %+v, want %+v", s.HugePages, want)
	}
	if s.Kernel != "5.15.0-1" || s.ISA.Source != "/proc/cpuinfo" || s.ISA.Vendor != "GenuineIntel" || s.ISA.AMX != "the CPU has AMX, but Linux 5.15.0-1 does not lend the tiles: 5.16 or later is needed" {
		t.Errorf("kernel %q, ISA %+v", s.Kernel, s.ISA)
	}
}

// CPUID dumps in a tree are believed before /proc/cpuinfo; what one kind of core lacks no thread may use.
func TestDumpsInTree(t *testing.T) {
	const head = "0 0 7 756e6547 6c65746e 49656e69\n1 0 90672 0 3ffa1203 0\nd 0 e7 0 0 0\n"
	s, err := Inspect(fake(with(box(), map[string]string{
		"cpuid/pu0": head + "7 0 0 d0030128 0 0", "cpuid/pu8": head + "7 0 0 128 0 0", "cpuid/pu9": "nonsense", "cpuid/hwloc-cpuid-info": "Architecture: x86"})).FS, false)
	if err != nil {
		t.Fatal(err)
	}
	if s.ISA.Source != "CPUID dump cpuid/pu0" || s.ISA.Vendor != "GenuineIntel" || !strings.Contains(strings.Join(s.ISA.Features, " "), "avx2") ||
		strings.Contains(strings.Join(s.ISA.Features, " "), "avx512") || !strings.Contains(strings.Join(s.Missing, ";"), "cpuid/pu9: line 1") {
		t.Errorf("%+v; %q", s.ISA, s.Missing)
	}
}
